"""A scripted daemon in a thread, for commands to brokers and controllers that are not ours."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.client.scripted import scripted


def answer(body: bytes = b"", fields: Mapping[str, str] | None = None, code: int = 0) -> Handler:
    """Always this answer."""

    def handle(request: Command, channel: Channel) -> Command:
        return request.reply(code, dict(fields or {}), body)

    return handle


@contextmanager
def daemon(handlers: Mapping[RequestCode, Handler]) -> Iterator[str]:
    """Serve `handlers` until the block ends; yield the address, "host:port"."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        event = asyncio.Event()
        async with scripted({int(code): item for code, item in handlers.items()}) as address:
            started.set_result((address, asyncio.get_running_loop(), event))
            await event.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    address, loop, event = started.result(30)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(event.set)
        thread.join(30)
