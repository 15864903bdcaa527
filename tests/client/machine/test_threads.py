"""Threads with a loop of their own, at their end."""

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from mq.client.machine.threads import LoopThread


def test_nothing_is_taken_by_a_loop_that_ends_while_it_waits_for_work_that_blocks() -> None:
    """It was begun and never ended: whoever waited for it did for ever."""
    thread = LoopThread("test")
    begun, goes_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        goes_on.wait(30)

    async def working() -> None:
        await asyncio.to_thread(work)

    async def asking() -> None: ...

    working_there = thread.submit(working())
    assert begun.wait(30)
    stopping = threading.Thread(target=thread.stop)
    stopping.start()
    try:
        with pytest.raises(CancelledError):
            working_there.result(30)
        with pytest.raises(RuntimeError, match="ends"):
            thread.submit(asking())
    finally:
        goes_on.set()
        stopping.join()
