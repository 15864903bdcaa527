"""Connections to TubeMQ's servers: requests and their answers (see mq.client.in_flight)."""

import asyncio
import ssl
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from mq.client.errors import BadAnswer, ClientError, ConnectError
from mq.client.in_flight import InFlight, Pending
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


class NotConnected(ConnectError):
    """There was no connection: nothing has been sent."""

    hint = "check that it runs there, or give the masters: -n HOST:8715"


class TubeConnection(InFlight):
    """The connection to one address, made at once. It ends once; who wants more makes another.

    Args:
        address: "host:port".
        tls: encrypts it; servers listen for that on ports of their own.
        tls_name: the host that the server's certificate has to be of, where that is another than
            the address has: what was looked up.
        version: the protocol version to speak; servers of all releases take each.
    """

    _PEER = "server"

    def __init__(
        self,
        address: str,
        *,
        tls: ssl.SSLContext | None = None,
        tls_name: str | None = None,
        connect_timeout: float = 3.0,
        version: int = VERSION,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(address, loop, "client")
        self.unexpected = 0  # answers that nobody waited for any more
        self._tls = tls
        self._tls_name = None if tls is None else tls_name
        self._version = version
        self._used = loop.time()  # when something last went over it
        self._decoder = FrameDecoder()
        self._serials = count(1)
        self._batch_bytes = 0
        self._await_connection(loop.create_task(self._connect(connect_timeout)))

    async def _dial(self) -> None:
        try:
            address = Address.parse(self.address)
        except RemoteProtocolError as error:
            raise ClientError(str(error)) from None
        await self._loop.create_connection(
            lambda: self,
            address.host,
            address.port,
            ssl=self._tls,
            server_hostname=self._tls_name,
        )

    def _unconnected(self, reason: str) -> ConnectError:
        """NotConnected only if nothing can have been sent.

        A connection that has just been made may be given up before asyncio says that it was.
        """
        kind = NotConnected if self._transport is None else ConnectError
        return kind(self.address, reason)

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
        self._used = now
        self._batch.append(frame)
        self._batch_bytes += len(frame)
        self._write_soon()
        self._wait(serial, Pending(future, deadline, seconds, method, convert, raised))
        return future

    def _flush(self) -> None:
        super()._flush()
        if self._transport is not None:
            self._batch_bytes = 0

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

    def _complete(self, pending: Pending, payload: bytes) -> None:
        future = cast("asyncio.Future[Any]", pending.future)  # nobody else waits for TubeMQ
        try:
            answer = decode_response(payload, pending.code)
            result = answer if pending.convert is None else pending.convert(answer)
        except RemoteFailure as failure:
            raised = pending.raised
            future.set_exception(failure if raised is None else raised(failure))
        except RemoteProtocolError as error:
            future.set_exception(BadAnswer(self.address, str(error)))
        except Exception as error:  # whatever it is, somebody waits
            future.set_exception(error)
        else:
            future.set_result(result)
