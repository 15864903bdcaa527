"""How long an event loop is held up, whatever else the machine and the process are busy with."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time

from mq.protocol.command import Command
from tests.daemons.peer import Peer

__all__ = ["settled", "thread_time", "worst_while"]  # seconds of this thread alone


@contextmanager
def settled() -> Iterator[None]:
    """As in a daemon that has started (daemons/service.py): what lives now is not looked through.

    A process of the suite has objects of thousands of tests, and looking through them takes as long
    as what is measured here.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def worst_while(asked: "asyncio.Task[Command]", other: Peer) -> float:
    """The longest that another client waits for an answer meanwhile, in seconds of the loop's own
    time: what other processes do does not count."""
    worst = 0.0
    while not asked.done():
        began = thread_time()
        await other.ask(99999)
        worst = max(worst, thread_time() - began)
    return worst
