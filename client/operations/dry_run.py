"""Sessions that only read: requests that would change something are recorded.

Reads are an allow list, marked as such in mq.protocol.codes; any other request counts as a change
and is not sent. Its sender gets an answer as if it had succeeded, so that a command continues with
its next change.
"""

from typing import TYPE_CHECKING, Any, Self

from mq.client.operations.changes import Changes
from mq.client.transport.blocking import BlockingSession
from mq.protocol.codes import PULLS, RequestCode, kind_of
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.send import Letter
from mq.protocol.requests import RequestKind

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_OFFSET_ID = "0" * 32  # decodes as offset 0 of 0.0.0.0:0, where there is no broker


def answer(changes: Changes, address: str, command: Command) -> Command | None:
    """Return the answer to a change after recording it; None for a request that must be sent."""
    if command.code in PULLS:
        _uncommitted(command)
    kind = kind_of(command.code)
    if kind is RequestKind.READ:
        return None
    if kind is not RequestKind.PRESENCE:
        changes.request(address, command)
    if kind is RequestKind.SEND:
        queue = command.fields.get(Letter.QUEUE_ID) or command.fields.get("queueId") or "0"
        return command.reply(0, {"msgId": _NO_OFFSET_ID, "queueId": queue, "queueOffset": "0"})
    return command.reply(0, _header(command.code), _body(command))


_BLANK = {"text": "", "i32": "0", "i64": "0", "float": "0", "bool": "false"}


def _header(code: int) -> dict[str, str]:
    """Return the required fields of an answer to this request, empty or 0."""
    from mq.protocol.headers import RESPONSE_HEADERS

    found = RESPONSE_HEADERS.get(code)
    fields = () if found is None else found.FIELDS
    return {item.wire: _BLANK[item.kind] for item in fields if item.required}


def _body(command: Command) -> bytes:
    """Return the body of an answer; a request to lock queues succeeds for all of them."""
    if command.code != RequestCode.LOCK_BATCH_MQ:
        return b"{}"
    from mq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody

    try:
        wanted = LockBatchRequestBody.decode(bytes(command.body)).mq_set
    except RemoteProtocolError:
        return b"{}"
    return LockBatchResponseBody(lock_ok_mq_set=wanted).encode()


def _uncommitted(command: Command) -> None:
    """Remove the instruction to commit an offset from a pull."""
    flags = int(command.fields.get("sysFlag") or 0)
    if flags & PullSysFlag.COMMIT_OFFSET:
        command.fields = {**command.fields, "sysFlag": str(flags & ~PullSysFlag.COMMIT_OFFSET)}


class DryBlockingSession(BlockingSession):
    """A BlockingSession that only reads."""

    def __init__(self, changes: Changes, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._changes = changes

    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        answered = answer(self._changes, address, command)
        return answered or await super().invoke(address, command, timeout)

    async def invoke_oneway(self, address: str, command: Command) -> None:
        if answer(self._changes, address, command) is None:
            await super().invoke_oneway(address, command)

    def blocking(self) -> Self:
        return type(self)(self._changes, self.name_servers, self.options)


def dry_session(changes: Changes, *arguments: Any, **options: Any) -> Any:
    """Create a Session on an event loop that only reads. A function, because the import takes
    time.
    """
    import asyncio

    from mq.client.transport.session import Session

    class DrySession(Session):
        def request(
            self,
            address: str,
            command: Command,
            timeout: float | None = None,
            convert: "Callable[[Command], Any] | None" = None,
        ) -> "asyncio.Future[Any]":
            answered = answer(changes, address, command)
            if answered is None:
                return super().request(address, command, timeout, convert)  # type: ignore[arg-type]
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_result(answered if convert is None else convert(answered))
            return future

        def send_oneway(self, address: str, command: Command) -> Any:
            if answer(changes, address, command) is None:
                return super().send_oneway(address, command)
            return _Sink()

        def blocking(self) -> BlockingSession:
            return DryBlockingSession(changes, self.name_servers, self.options)

    return DrySession(*arguments, **options)


class _Sink:
    """A placeholder for the connection to which a request was not written."""

    async def drain(self) -> None:
        pass
