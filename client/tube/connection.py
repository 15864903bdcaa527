"""Connections to TubeMQ servers: requests and their answers (see mq.client.transport.in_flight)."""

import asyncio
import ssl
from collections.abc import Callable
from itertools import count
from typing import Any, cast

from mq.client.errors import BadAnswer, ClientError, ConnectError
from mq.client.transport.in_flight import InFlight, Pending
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.tube.codes import VERSION, Method
from mq.protocol.tube.errors import RemoteFailure
from mq.protocol.tube.frame import FrameDecoder
from mq.protocol.tube.rpc import decode_response, encode_request
from mq.protocol.tube.strings import Address

#: The part of a request's timeout that is reserved for transmission: the server gets the rest (as
#: in the C++ client). For timeouts shorter than twice this, half.
TRAVEL_MS = 500

#: Unsent bytes per server; the original's high water mark (nettyWriteHighWaterMark).
MAX_UNSENT = 50 * 1024 * 1024


class NotConnected(ConnectError):
    """There was no connection: nothing was sent."""

    hint = "check that it runs there, or give the masters: -n HOST:8715"


class TubeConnection(InFlight):
    """The connection to one address, opened at once. After its end a new one must be created.

    Args:
        address: "host:port".
        tls: encrypts it; servers have separate ports for TLS.
        tls_name: the host in the server's certificate, if the address is a resolved one.
        version: the protocol version to use; servers of all releases accept each.
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
        self.unexpected = 0  # answers that were no longer pending
        self._tls = tls
        self._tls_name = None if tls is None else tls_name
        self._version = version
        self._used = loop.time()  # when anything was last sent or received
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
        """Return NotConnected only if nothing can have been sent.

        A connection may be abandoned after it was established but before asyncio reports it.
        """
        kind = NotConnected if self._transport is None else ConnectError
        return kind(self.address, reason)

    @property
    def unsent(self) -> int:
        """The bytes that the server has not accepted yet."""
        if self._transport is None:
            return self._batch_bytes
        return self._batch_bytes + self._transport.get_write_buffer_size()

    @property
    def waiting(self) -> int:
        """The number of pending requests."""
        return len(self._pending)

    @property
    def has_ended(self) -> bool:
        return self.error is not None

    @property
    def idle_since(self) -> float:
        """When anything was last sent or received, by the loop's clock; now, while requests are
        pending.
        """
        return self._loop.time() if self._pending else self._used

    async def call(self, method: Method, body: bytes, timeout: float) -> bytes:
        """Send a request and wait for its answer. Raises what `request` raises, and the error of
        its future.
        """
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
        """Send a request without waiting; its future gets the answer, or the result of `convert`.

        It fails with ConnectError (NotConnected if nothing was sent), RequestTimeout, BadAnswer, or
        what `convert` raises; if the answer is an exception, with RemoteFailure, or the result of
        `raised`. The call itself raises the error with which the connection ended, if any, and
        NotConnected if the server accepts no more data.
        """
        if self.error is not None:
            raise self.error
        if self.unsent > MAX_UNSENT:
            raise NotConnected(self.address, f"{self.unsent} bytes are unsent: server too slow")
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
        future = cast("asyncio.Future[Any]", pending.future)  # TubeMQ has no other kind of waiter
        try:
            answer = decode_response(payload, pending.code)
            result = answer if pending.convert is None else pending.convert(answer)
        except RemoteFailure as failure:
            raised = pending.raised
            future.set_exception(failure if raised is None else raised(failure))
        except RemoteProtocolError as error:
            future.set_exception(BadAnswer(self.address, str(error)))
        except Exception as error:  # any error must complete the future
            future.set_exception(error)
        else:
            future.set_result(result)
