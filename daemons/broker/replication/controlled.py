"""What a broker is told before it starts in a set that controllers keep (enableControllerMode).

A role is for the life of a `Broker`: when controllers give another one, the broker is stopped and
started with that. So what moves the log never changes sides while it runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

#: Called with the members that controllers have agreed on, and the epoch of that.
OnMembers = Callable[[frozenset[int], int], None]


@dataclass(frozen=True, slots=True)
class ControlledRole:
    """The place of a broker in its set.

    ``broker_id`` is the id that the controllers know it by, also of a master, whose brokerId is 0.
    ``master_address`` is where the master answers requests, ``master_ha_address`` where it is
    replicated from ("host:port"; "" where name servers have to tell). ``members`` is the sync state
    set with its epoch.
    """

    broker_id: int
    is_master: bool
    master_id: int
    master_epoch: int
    master_address: str
    master_ha_address: str
    members: frozenset[int]
    members_epoch: int


class ControllerRefused(Exception):
    """The controller has answered, and not done what it was asked. ``code`` is its answer's."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark or f"code {code}")
        self.code = code


class Controllers(Protocol):
    """What a master asks the controllers of its set, and hears from them."""

    async def alter(self, members: frozenset[int], epoch: int) -> tuple[frozenset[int], int]:
        """Ask for another sync state set, ``epoch`` being that of the last one known; returns the
        accepted one and its epoch.

        Raises ControllerRefused with the code of the answer; TimeoutError or ConnectionError when
        nobody knows whether it was accepted.
        """

    def may_answer(self) -> bool:
        """Whether nobody else can have been elected whose log lacks what is written here now."""

    def on_members(self, callback: OnMembers) -> None:
        """Have a callback called with what a controller says of the set unasked."""
