"""How long an event loop is delayed, independent of other work of the machine and the process."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time

from mq.protocol.command import Command
from tests.daemons.peer import Peer

__all__ = ["settled", "thread_time", "worst_while"]  # CPU seconds of this thread


@contextmanager
def settled() -> Iterator[None]:
    """Freeze existing objects for the garbage collector, as a started daemon does
    (daemons/service.py).

    The test process has objects of thousands of tests; scanning them takes as long as the times
    measured here.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def worst_while(asked: "asyncio.Task[Command]", other: Peer) -> float:
    """The longest time that another client waits for a reply meanwhile, in CPU seconds of the
    loop's thread: other processes do not count.
    """
    worst = 0.0
    while not asked.done():
        began = thread_time()
        await other.ask(99999)
        worst = max(worst, thread_time() - began)
    return worst
