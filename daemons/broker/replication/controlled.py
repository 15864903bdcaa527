"""The role of a broker in a replica set with controllers (enableControllerMode), fixed at its
start.

A role lasts for the life of a `Broker`: when controllers assign another one, the broker is stopped
and started in the new role. So code that changes the log never changes sides while it runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

# Called with the members that controllers have agreed on, and their epoch.
OnMembers = Callable[[frozenset[int], int], None]


@dataclass(frozen=True, slots=True)
class ControlledRole:
    """The role of a broker in its replica set.

    ``broker_id`` is the id assigned by the controllers, also of a master, whose brokerId is 0.
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
    """The controller has refused a request. ``code`` is the code of its reply."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark or f"code {code}")
        self.code = code


class Controllers(Protocol):
    """Requests of a master to the controllers of its replica set, and their reports."""

    async def alter(self, members: frozenset[int], epoch: int) -> tuple[frozenset[int], int]:
        """Request another sync state set; ``epoch`` is the epoch of the last known one. Returns the
        accepted set and its epoch.

        Raises ControllerRefused with the code of the reply; TimeoutError or ConnectionError if it
        is unknown whether the set was accepted.
        """

    def may_answer(self) -> bool:
        """Whether no other master can have been elected whose log lacks the records written here
        now.
        """

    def on_members(self, callback: OnMembers) -> None:
        """Set the callback for reports of the set by a controller."""
