"""Threads with their own loop, when they end."""

import asyncio
import threading
from concurrent.futures import CancelledError, Future

import pytest

from mq.client.machine.threads import LoopThread


def test_a_loop_that_ends_during_blocking_work_refuses_calls() -> None:
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
def test_calls_to_a_loop_that_a_task_ended_are_cancelled() -> None:
    """A regression: the call started while the loop waited for blocking work, and never ended."""
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
