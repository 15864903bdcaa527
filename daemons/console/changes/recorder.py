"""What a change may send: exactly the requests that its preview has shown."""

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

# Header fields that are another each time, whatever the request is about: when a message was made,
# and the place that a look-up finds for "the end" of a queue that goes on.
_MOVING = {
    RequestCode.SEND_MESSAGE: {"bornTimestamp"},
    RequestCode.SEND_MESSAGE_V2: {"g"},
    RequestCode.SEND_BATCH_MESSAGE: {"g"},
    RequestCode.UPDATE_CONSUMER_OFFSET: {"commitOffset"},
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: {"offset"},
}
_PROPERTIES = ("i", "properties")  # of a message, one of which is its id
_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)

Key = tuple[str, int, bytes]


class NotPreviewed(Forbidden, ClientError):
    """A request was not in the preview, or may not be sent any more: nothing went to this one
    target."""


def key_of(address: str, command: Command) -> Key:
    """What two requests have in common if one was shown in place of the other."""
    moving = _MOVING.get(command.code, ())  # type: ignore[call-overload]
    fields = {n: str(v) for n, v in command.fields.items() if n not in moving}
    body = bytes(command.body)
    if kind_of(command.code) is RequestKind.SEND:
        for name in _PROPERTIES:
            if name in fields:
                fields[name] = _without_id(fields[name])
    if command.code in _LOCKS:
        # Each session locks as a client of its own.
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

    def __init__(self, keys: Counter[Key], may_still: Callable[[], bool] = lambda: True) -> None:
        """``may_still`` says whether its user may go on."""
        self._may_still = may_still
        self._left = Counter({key: count * self.TRIES for key, count in keys.items()})

    def __call__(self, address: str, command: Command) -> None:
        """Raises NotShown for what was not in the preview."""
        kind = kind_of(command.code)
        if kind in (RequestKind.READ, RequestKind.PRESENCE):
            return
        if not self._may_still():
            raise NotPreviewed(f"{_name(command.code)} was not sent: this user may not any more")
        key = key_of(address, command)
        if self._left[key] <= 0:
            raise NotPreviewed(
                f"{_name(command.code)} to {address} was not in the preview: look at it again"
            )
        self._left[key] -= 1


def shown_request(one: PlannedChange) -> str:
    """A recorded request in one line."""
    fields = ", ".join(f"{name}={value}" for name, value in one.header.items())
    body = f" {one.body_text}" if one.body_text else ""
    return f"{one.request} → {one.target}: {fields}{body}"[:2000]


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"
