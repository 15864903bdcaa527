"""Work that keeps its state in a file, and what a disk that is full for a moment costs it."""

import asyncio
from pathlib import Path

import pytest

from mq.client.operations.errors import CannotWrite
from mq.client.operations.messages import resumable
from tests.client.tube.virtual_time import run_fast

ASKED = {"topic": "orders"}


class Work:
    """Work with one queue, and a state that cannot be saved while its folder is away."""

    def __init__(self, place: Path) -> None:
        self._folder, self._away = place / "folder", place / "away"
        self._folder.mkdir()
        self.path = self._folder / "state"
        self.next = 0

    def save(self) -> None:
        resumable.save(self.path, ASKED, {"a:0": {"next": self.next}})

    def saved(self) -> int:
        return int(resumable.load(self.path, ASKED, "a copy").queues["a:0"]["next"])

    def block(self) -> None:
        self._folder.rename(self._away)

    async def turn_in_vain(self) -> None:
        """Let a save fail, then have the folder there again."""
        self.block()
        await asyncio.sleep(1.5 * resumable.SAVE_SECONDS)
        self._away.rename(self._folder)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_a_save_that_failed_is_tried_again_and_does_not_end_the_work(work: Work) -> None:
    async def run() -> list[str]:
        await work.turn_in_vain()
        assert work.saved() == 0
        work.next = 5
        await asyncio.sleep(resumable.SAVE_SECONDS)
        assert work.saved() == 5
        return []

    assert run_fast(resumable.keep(work.path, work.save, run)) == []
    assert not work.path.exists()


def test_what_failed_is_returned_when_the_last_save_works(work: Work) -> None:
    async def run() -> list[str]:
        await work.turn_in_vain()
        work.next = 7
        return ["broker-b: away"]

    assert run_fast(resumable.keep(work.path, work.save, run)) == ["broker-b: away"]
    assert work.saved() == 7


def test_a_last_save_that_fails_is_an_error(work: Work) -> None:
    async def run() -> list[str]:
        work.block()
        return ["broker-b: away"]

    with pytest.raises(CannotWrite):
        run_fast(resumable.keep(work.path, work.save, run))


def test_work_that_is_cancelled_is_saved_and_never_again(work: Work) -> None:
    async def run() -> list[str]:
        work.next = 3
        await asyncio.Event().wait()
        return []

    async def main() -> None:
        task = asyncio.create_task(resumable.keep(work.path, work.save, run))
        await asyncio.sleep(0.5 * resumable.SAVE_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.saved() == 3
        work.next = 4
        await asyncio.sleep(2 * resumable.SAVE_SECONDS)
        assert work.saved() == 3

    run_fast(main())
