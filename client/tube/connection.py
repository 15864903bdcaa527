"""Connections to TubeMQ's servers: requests in flight side by side, their deadlines, their end.

As `mq.client.peer`, and for its reasons, nothing here makes a task or awaits per request: one write
per turn of the event loop goes to the socket, one pass over what arrived completes the futures, one
timer per connection looks at deadlines. A connection exists from its first request on; what is
written before it stands goes out when it does, or fails when it cannot.
"""

import asyncio
import ssl
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple, cast

from mq.client.errors import (
    BadAnswer,
    ClientError,
    ConnectError,
    MQError,
    RequestTimeout,
    reason_of,
)
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.tube.codes import VERSION, Method
from mq.protocol.tube.errors import RemoteFailure
from mq.protocol.tube.frame import FrameDecoder
from mq.protocol.tube.rpc import decode_response, encode_request
from mq.protocol.tube.strings import Address

#: Of a request's time-out, what its server has: the rest is for the ways there and back (the C++
#: client takes off as much). Of shorter ones than this twice, half.
TRAVEL_MS = 500

#: Bytes that may wait for one server; the original's high mark (nettyWriteHighWaterMark).
MAX_UNSENT = 50 * 1024 * 1024

# A time-out ends a connection on which nothing has come for so long: see mq.client.peer.
_SILENCE_SECONDS = 3.0


class _Pending(NamedTuple):
    """A request that waits for its answer."""

    future: "asyncio.Future[Any]"
    deadline: float
    seconds: float
    method: int
    convert: Callable[[bytes], Any] | None
    raised: Callable[[RemoteFailure], Exception] | None


class NotConnected(ConnectError):
    """There was no connection: nothing has been sent."""

    hint = "check that it runs there, or give the masters: -n HOST:8715"


class Connection(asyncio.Protocol):
    """The connection to one address, made at once. It ends once; who wants more makes another.

    Args:
        address: "host:port".
        tls: encrypts it; servers listen for that on ports of their own.
        tls_name: the host that the server's certificate has to be of, where that is another than
            the address has: what was looked up.
        version: the protocol version to speak; servers of all releases take each.
    """

    def __init__(
        self,
        address: str,
        *,
        tls: ssl.SSLContext | None = None,
        tls_name: str | None = None,
        connect_timeout: float = 3.0,
        version: int = VERSION,
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self.address = address
        self.error: MQError | None = None  # why it has ended
        self.ended: asyncio.Future[None] = loop.create_future()
        self.unexpected = 0  # answers that nobody waited for any more
        self._tls = tls
        self._tls_name = None if tls is None else tls_name
        self._connect_timeout = connect_timeout
        self._version = version
        self._used = loop.time()  # when something last went over it
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._serials = count(1)
        self._batch: list[bytes] = []
        self._batch_bytes = 0
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard = loop.time()
        self._writable: asyncio.Future[None] | None = None  # set while the socket is full
        self._connecting = loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            address = Address.parse(self.address)
            async with asyncio.timeout(self._connect_timeout):
                await self._loop.create_connection(
                    lambda: self,
                    address.host,
                    address.port,
                    ssl=self._tls,
                    server_hostname=self._tls_name,
                )
        except TimeoutError:
            self._end(self._connect_error("no connection in time"))
        except OSError as error:
            self._end(self._connect_error(reason_of(error)))
        except RemoteProtocolError as error:
            self._end(ClientError(str(error)))
        except asyncio.CancelledError:
            self._end(self._connect_error("the client was closed"))
            raise

    def _connect_error(self, reason: str) -> ConnectError:
        """Why there is no connection; NotConnected only if nothing can have been sent.

        A connection that has just been made may be given up before asyncio says that it was.
        """
        kind = NotConnected if self._transport is None else ConnectError
        return kind(self.address, reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's are none
        if self.error is not None:
            transport.abort()
            return
        self._heard = self._loop.time()
        self._flush()

    @property
    def unsent(self) -> int:
        """Bytes that the server has not taken yet."""
        if self._transport is None:
            return self._batch_bytes
        return self._batch_bytes + self._transport.get_write_buffer_size()

    @property
    def waiting(self) -> int:
        """How many requests wait for their answer."""
        return len(self._pending)

    @property
    def stands(self) -> bool:
        """Whether the connection has been made, and goes on."""
        return self._transport is not None and self.error is None

    @property
    def has_ended(self) -> bool:
        return self.error is not None

    @property
    def idle_since(self) -> float:
        """When something last went over it, by the loop's clock; now, while requests wait."""
        return self._loop.time() if self._pending else self._used

    async def call(self, method: Method, body: bytes, timeout: float) -> bytes:
        """Send a request and wait for its answer. Raises as `request` does and its future fails."""
        answer: bytes = await self.request(method, body, timeout)
        return answer

    def request(
        self,
        method: Method,
        body: bytes,
        seconds: float,
        convert: Callable[[bytes], Any] | None = None,
        raised: Callable[[RemoteFailure], Exception] | None = None,
    ) -> "asyncio.Future[Any]":
        """Send a request without waiting; its future gets the answer, or what `convert` makes.

        It fails with ConnectError (NotConnected where nothing has been sent), RequestTimeout,
        BadAnswer, or what `convert` raises; where the answer is an exception, with RemoteFailure,
        or what `raised` makes of it. Raises why the connection has ended, if it has, and
        NotConnected if the server takes no more.
        """
        if self.error is not None:
            raise self.error
        if self.unsent > MAX_UNSENT:
            raise NotConnected(self.address, f"it takes no more: {self.unsent} bytes are unsent")
        now = self._loop.time()
        future: asyncio.Future[Any] = self._loop.create_future()
        serial = next(self._serials) & 0xFFFFFFFF
        milliseconds = int(seconds * 1000)
        travel = min(TRAVEL_MS, milliseconds // 2)
        frame = encode_request(serial, method, body, milliseconds - travel, version=self._version)
        deadline = now + seconds
        self._pending[serial] = _Pending(future, deadline, seconds, method, convert, raised)
        self._used = now
        self._batch.append(frame)
        self._batch_bytes += len(frame)
        if not self._flush_is_due and self._transport is not None:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)
        return future

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._batch and self._transport is not None:
            batch = self._batch
            self._transport.write(batch[0] if len(batch) == 1 else b"".join(batch))
            batch.clear()
            self._batch_bytes = 0

    async def drain(self) -> None:
        """Wait while the server takes no more. Raises why the connection has ended, if it has."""
        if self._transport is None and self.error is None:
            await asyncio.wait([self._connecting])
        while self._writable is not None:
            await asyncio.shield(self._writable)
        if self.error is not None:
            raise self.error

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def data_received(self, data: bytes) -> None:
        self._heard = self._used = self._loop.time()
        try:
            for serial, payload in self._decoder.feed(data):
                pending = self._pending.pop(serial, None)
                if pending is None or pending.future.done():
                    self.unexpected += 1
                else:
                    self._complete(pending, payload)
        except RemoteProtocolError as error:
            self._end(BadAnswer(self.address, str(error)))

    def _complete(self, pending: _Pending, payload: bytes) -> None:
        try:
            answer = decode_response(payload, pending.method)
            result = answer if pending.convert is None else pending.convert(answer)
        except RemoteFailure as failure:
            raised = pending.raised
            pending.future.set_exception(failure if raised is None else raised(failure))
        except RemoteProtocolError as error:
            pending.future.set_exception(BadAnswer(self.address, str(error)))
        except Exception as error:  # whatever it is, somebody waits
            pending.future.set_exception(error)
        else:
            pending.future.set_result(result)

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail what is overdue; look again when the next one may be. As `Peer._expire`."""
        self._timer = None
        now = self._loop.time()
        leads_nowhere = False
        for serial in [s for s, entry in self._pending.items() if entry.deadline <= now]:
            entry = self._pending.pop(serial)
            if not entry.future.done():
                entry.future.set_exception(
                    RequestTimeout(self.address, entry.seconds, entry.method)
                )
                leads_nowhere = leads_nowhere or self._heard <= now - _SILENCE_SECONDS
        if leads_nowhere:
            reason = f"nothing was heard for {now - self._heard:.1f} s"
            self._end(ConnectError(self.address, reason), flushes=False)
        elif self._pending:
            self._watch(min(entry.deadline for entry in self._pending.values()))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the server closed the connection"
        if exc is not None:
            reason = reason_of(exc) if isinstance(exc, OSError) else str(exc)
        self._end(ConnectError(self.address, reason))

    def _end(self, error: MQError, *, flushes: bool = True) -> None:
        """The connection is over: every request that waits fails with `error`."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            if flushes:
                self._transport.close()
            else:
                self._transport.abort()
        self.resume_writing()
        self._batch.clear()
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        self._pending.clear()
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Send what is to be sent, and end. What waits for answers fails."""
        self._flush()
        self._connecting.cancel()
        self._end(ConnectError(self.address, "the client was closed"))
