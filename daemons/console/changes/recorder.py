"""What a change may send: exactly the requests that its preview has shown."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from mq.client.operations.changes import Change as Recorded
from mq.client.operations.changes import Changes
from mq.daemons.console.guarded_session import Forbidden
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.requests import RequestKind, kind_of

# Header fields that say what a request is about: the same in the preview and when it is sent.
_SUBJECTS = ("topic", "b", "group", "consumerGroup", "groupName", "subscriptionGroup", "username")
# Of one message, which is given to a consumer.
_OF_MESSAGE = ("msgId", "clientId")

Key = tuple[str, int, tuple[str, ...]]


def key_of(address: str, command: Command) -> Key:
    """What two requests have in common if one was shown in place of the other."""
    subjects = tuple(str(command.fields.get(name) or "") for name in _SUBJECTS)
    if kind_of(command.code) is RequestKind.SEND:
        # What lies at a place may have become another message since.
        subjects += (hashlib.sha256(command.body).hexdigest(),)
    elif command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        subjects += tuple(str(command.fields.get(name) or "") for name in _OF_MESSAGE)
    return address, int(command.code), subjects


@dataclass(slots=True)
class Recorder(Changes):
    """The changes of a preview, and how often each was recorded."""

    keys: Counter[Key] = field(default_factory=Counter)

    def request(self, address: str, command: Command) -> None:
        self.keys[key_of(address, command)] += 1
        Changes.request(self, address, command)


class Allowance:
    """Lets through reads, and each request as often as the preview had it.

    A broker that was away, or a request that was tried again, may be asked once more than shown:
    who tries again sends the same request to the same peer.
    """

    TRIES = 3

    def __init__(self, keys: Counter[Key]) -> None:
        self._left = Counter({key: count * self.TRIES for key, count in keys.items()})

    def __call__(self, address: str, command: Command) -> None:
        """Raises Forbidden for what was not in the preview."""
        kind = kind_of(command.code)
        if kind in (RequestKind.READ, RequestKind.PRESENCE):
            return
        key = key_of(address, command)
        if self._left[key] <= 0:
            raise Forbidden(
                f"{_name(command.code)} to {address} was not in the preview: look at it again"
            )
        self._left[key] -= 1


def shown_request(one: Recorded) -> str:
    """A recorded request in one line."""
    fields = ", ".join(f"{name}={value}" for name, value in one.header.items())
    body = f" {one.body_text}" if one.body_text else ""
    return f"{one.request} → {one.target}: {fields}{body}"[:2000]


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"
