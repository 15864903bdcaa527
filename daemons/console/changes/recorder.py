"""The requests that a change may send: exactly those of its preview."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from mq.client.errors import ClientError
from mq.client.operations.changes import Changes, PlannedChange
from mq.daemons.console.guarded_session import Forbidden
from mq.protocol import properties
from mq.protocol.bodies import LockBatchRequestBody
from mq.protocol.codes import RequestCode, kind_of
from mq.protocol.command import Command
from mq.protocol.properties import PropertyKey
from mq.protocol.requests import RequestKind

# Header fields that differ each time, independent of the request's target: a message's born time,
# and the offset found for the end of a queue that receives messages.
_MOVING = {
    RequestCode.SEND_MESSAGE: {"bornTimestamp"},
    RequestCode.SEND_MESSAGE_V2: {"g"},
    RequestCode.SEND_BATCH_MESSAGE: {"g"},
    RequestCode.UPDATE_CONSUMER_OFFSET: {"commitOffset"},
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: {"offset"},
}
_PROPERTIES = ("i", "properties")  # properties of a message, one of which is its id
_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)

Key = tuple[str, int, bytes]


class NotPreviewed(Forbidden, ClientError):
    """A request was not in the preview, or is not allowed any more; this target received
    nothing."""


def key_of(address: str, command: Command) -> Key:
    """Return the key that a previewed request and the actual one have in common."""
    moving = _MOVING.get(command.code, ())  # type: ignore[call-overload]
    fields = {n: str(v) for n, v in command.fields.items() if n not in moving}
    body = bytes(command.body)
    if kind_of(command.code) is RequestKind.SEND:
        for name in _PROPERTIES:
            if name in fields:
                fields[name] = _without_id(fields[name])
    if command.code in _LOCKS:
        # Each session locks with its own client id.
        locked = LockBatchRequestBody.decode(body)
        body = repr((locked.consumer_group, sorted(map(repr, locked.mq_set)))).encode()
    digest = hashlib.sha256(repr(sorted(fields.items())).encode("utf-8", "surrogatepass"))
    digest.update(body)
    return address, int(command.code), digest.digest()


def _without_id(text: str) -> str:
    found = properties.decode(text)
    found.pop(PropertyKey.UNIQUE_KEY, None)
    return repr(sorted(found.items()))


@dataclass(slots=True)
class Recorder(Changes):
    """The requests of a preview, and the number of each."""

    keys: Counter[Key] = field(default_factory=Counter)

    def request(self, address: str, command: Command) -> None:
        self.keys[key_of(address, command)] += 1
        Changes.request(self, address, command)


class Allowance:
    """Allows reads, and each request as often as the preview contained it.

    A request that is retried, as after a failure, may be sent more often: a retry is the same
    request to the same peer.
    """

    TRIES = 3

    def __init__(self, keys: Counter[Key], may_still: Callable[[], bool] = lambda: True) -> None:
        """``may_still`` returns whether the user may continue."""
        self._may_still = may_still
        self._left = Counter({key: count * self.TRIES for key, count in keys.items()})

    def __call__(self, address: str, command: Command) -> None:
        """Raise NotPreviewed for a request that was not in the preview."""
        kind = kind_of(command.code)
        if kind in (RequestKind.READ, RequestKind.PRESENCE):
            return
        if not self._may_still():
            raise NotPreviewed(
                f"{_name(command.code)} was not sent: this user is no longer allowed"
            )
        key = key_of(address, command)
        if self._left[key] <= 0:
            raise NotPreviewed(
                f"{_name(command.code)} to {address} was not in the preview: request a new one"
            )
        self._left[key] -= 1


def shown_request(one: PlannedChange) -> str:
    """Return a recorded request in one line."""
    fields = ", ".join(f"{name}={value}" for name, value in one.header.items())
    body = f" {one.body_text}" if one.body_text else ""
    return f"{one.request} → {one.target}: {fields}{body}"[:2000]


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"
