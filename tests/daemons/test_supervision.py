"""Tasks are restarted after an error, and no other task ends."""

import asyncio

import pytest

from mq.daemons import supervision
from mq.daemons.metrics import of_tasks
from mq.daemons.supervision import Tasks, describe


def test_a_task_is_restarted_after_each_error_with_growing_pauses() -> None:
    times: list[float] = []

    async def main() -> None:
        enough = asyncio.Event()

        async def fail() -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) == 3:
                enough.set()
            raise ValueError(f"number {len(times)}")

        async with Tasks() as tasks:
            tasks.spawn(fail, "failing")
            await asyncio.wait_for(enough.wait(), 30)
            await asyncio.sleep(0)
            assert tasks.failures["failing"].count == 3
            assert tasks.info()["taskFailures"] == "3"
            assert tasks.info()["lastTaskFailure"] == "failing: ValueError: number 3"
            assert list(tasks.state()) == ["task failing: 3 errors, the last: ValueError: number 3"]
            assert of_tasks(tasks).values == [(("failing",), 3.0)]

    asyncio.run(main())
    first, second = times[1] - times[0], times[2] - times[1]
    assert first > supervision.FIRST_PAUSE * 0.9
    assert second > 2 * supervision.FIRST_PAUSE * 0.9


def test_a_task_that_has_done_its_work_ends_and_closing_cancels_the_others() -> None:
    ended = []

    async def main() -> None:
        started = asyncio.Event()

        async def wait() -> None:
            try:
                started.set()
                await asyncio.Event().wait()
            finally:
                ended.append("waiting")

        async def work() -> None:
            ended.append("work")

        async with Tasks() as tasks:
            tasks.spawn(wait, "waiting")
            await asyncio.wait_for(tasks.spawn(work, "work"), 30)
            await started.wait()
            assert ended == ["work"]
        assert ended == ["work", "waiting"]
        assert tasks.failures == {}
        await tasks.close()

    asyncio.run(main())


def test_a_task_continues_although_its_awaited_task_was_cancelled() -> None:
    async def main() -> None:
        again = asyncio.Event()
        loop = asyncio.get_running_loop()
        waited_for = loop.create_future()
        loop.call_later(0.01, waited_for.cancel)
        turns = []

        async def work() -> None:
            turns.append(1)
            if len(turns) == 2:
                again.set()
                await asyncio.Event().wait()
            await waited_for

        async with Tasks() as tasks:
            tasks.spawn(work, "work")
            await asyncio.wait_for(again.wait(), 30)
            assert tasks.failures["work"].text == "CancelledError"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a\nb"), "ValueError: a b"),
        (KeyError(), "KeyError"),
        (ExceptionGroup("all", [ExceptionGroup("in", [OSError("x")])]), "OSError: x"),
        (ValueError("x" * 1000), "ValueError: " + "x" * 288),
    ],
)
def test_an_error_is_described_in_one_line(error: BaseException, text: str) -> None:
    assert describe(error) == text
