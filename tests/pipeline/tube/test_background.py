import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing

import pytest

from mq.pipeline.tube.background import Background


async def numbers(ended: list[str], most: int) -> AsyncGenerator[int, None]:
    try:
        for number in range(most):
            yield number
        raise ValueError("no more")
    finally:
        await asyncio.sleep(0)
        ended.append("ended")


def test_an_error_of_a_source_follows_its_items() -> None:
    ended: list[str] = []
    found = []
    with Background() as background, pytest.raises(ValueError, match="no more"):
        for number in background.iterate(numbers(ended, 5), 2):
            found.append(number)
    assert (found, ended) == ([0, 1, 2, 3, 4], ["ended"])


def test_stopping_early_ends_the_source() -> None:
    ended: list[str] = []
    with Background() as background:
        with closing(background.iterate(numbers(ended, 10**9), 2)) as items:
            assert next(items) == 0
        assert ended == ["ended"]


def test_the_loop_runs_while_no_caller_waits() -> None:
    async def begin(seconds: float) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(asyncio.sleep(seconds))

    with Background() as background:
        task = background.run(begin(0.01))

        async def is_over() -> bool:
            await task
            return task.done()

        assert background.run(is_over())
        left = background.run(begin(3600))
    assert left.cancelled()
    background.close()
