"""Threads with a loop of their own, at their end."""

import asyncio
import threading
from concurrent.futures import CancelledError, Future

import pytest

from mq.client.machine.threads import LoopThread


def test_nothing_is_taken_by_a_loop_that_ends_while_it_waits_for_work_that_blocks() -> None:
    """A regression: the work was started and never ended, so its caller waited forever."""
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_asks_a_loop_that_a_task_has_ended_does_not_wait_for_ever() -> None:
    """It was begun while the loop waited for work that blocks, and never ended."""
    thread = LoopThread("test")
    begun, goes_on = threading.Event(), threading.Event()
    asked: list[Future[None]] = []

    def work() -> None:
        begun.set()
        goes_on.wait(30)

    async def working() -> None:
        await asyncio.to_thread(work)

    async def asking() -> None:
        await asyncio.Event().wait()

    async def ending() -> None:
        asked.append(thread.submit(asking()))  # it begins as all others are cancelled
        raise SystemExit(3)

    working_there = thread.submit(working())
    assert begun.wait(30)
    try:
        thread.submit(ending())
        with pytest.raises(CancelledError):
            working_there.result(30)
        with pytest.raises(CancelledError):
            asked[0].result(30)
        with pytest.raises(RuntimeError, match="ends"):
            thread.submit(asking())
    finally:
        goes_on.set()
        thread.stop()
