"""A consumer of ours that runs in a thread, for commands that ask members about themselves."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from mq.client.consumer.consumer import Consumer
from mq.client.options import DEFAULT_INTERVALS, Intervals
from mq.daemons.standalone import Standalone
from mq.protocol.message import StoredMessage
from mq.protocol.names import retry_topic
from tests.client.scripted import routed


@contextmanager
def member(
    pair: Standalone,
    group: str,
    topic: str,
    tags: str = "*",
    intervals: Intervals = DEFAULT_INTERVALS,
) -> Iterator[str]:
    """Start a member of `group` that consumes `topic`; return its client id once registered."""
    started: Future[str] = Future()
    stop: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def listen(message: StoredMessage) -> None:
        pass

    async def consume() -> None:
        event = asyncio.Event()
        stop.set_result((asyncio.get_running_loop(), event))
        async with Consumer(
            pair.name_server_address, group, {topic: tags}, listener=listen, intervals=intervals
        ) as consumer:
            # Commands find members at the retry topic, which the broker has just created.
            await routed(consumer.session, retry_topic(group))
            started.set_result(consumer.session.client_id)
            await event.wait()

    def main() -> None:
        try:
            asyncio.run(consume())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=main)
    thread.start()
    try:
        yield started.result(30)
    finally:
        loop, event = stop.result(30)
        if thread.is_alive():
            loop.call_soon_threadsafe(event.set)
        thread.join(30)
