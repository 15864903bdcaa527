"""A port of TubeMQ with one handler, and clients that send arbitrary bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine

import pytest

from mq.daemons.tube import rpc
from mq.daemons.tube.rpc import Route, RpcListener
from mq.protocol.tube.codes import Method, Service
from mq.protocol.tube.errors import RemoteFailure
from mq.protocol.tube.frame import FrameDecoder
from mq.protocol.tube.messages import (
    CloseRequestC2M,
    CloseResponseM2C,
)
from mq.protocol.tube.rpc import (
    decode_response,
    encode_request,
)

CLOSE = Method.CONSUMER_CLOSE_C2M


REQUEST = CloseRequestC2M(clientId="c", groupName="g").SerializeToString()


ANSWER = CloseResponseM2C(success=True, errCode=200, errMsg="OK!")


SECONDS = 20


def run(test: Coroutine[None, None, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(100):
            await test

    asyncio.run(limited())


@contextlib.asynccontextmanager
async def serving(
    handle: rpc.Handler, kind: type[CloseRequestC2M] | None = CloseRequestC2M, **options: object
) -> AsyncIterator[RpcListener]:
    routes = {CLOSE: Route(handle, kind)}
    async with RpcListener(routes, "127.0.0.1", 0, **options) as listener:  # type: ignore[arg-type]
        yield listener


class Client:
    """A client that sends arbitrary bytes, and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[tuple[int, bytes]] = []

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def frame(self) -> tuple[int, bytes] | None:
        """Return the next frame; None if the connection has been closed."""
        while not self._frames:
            data = await self.reader.read(65536)
            if not data:
                return None
            self._frames = self._decoder.feed(data)
        return self._frames.pop(0)

    async def answer(self) -> bytes:
        frame = await self.frame()
        assert frame is not None
        return decode_response(frame[1])

    async def failure(self) -> RemoteFailure:
        with pytest.raises(RemoteFailure) as failure:
            await self.answer()
        return failure.value


@contextlib.asynccontextmanager
async def client(listener: RpcListener) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def request(serial: int = 1, method: int = CLOSE, timeout_ms: int = 5000, **more: int) -> bytes:
    service = Service(more.get("service", Service.MASTER))
    return encode_request(
        serial,
        method,  # type: ignore[arg-type]
        REQUEST,
        timeout_ms,
        service=service,
        version=more.get("version", 3),
    )
