"""Reading ahead of the writes takes no disk space, changes nothing, and keeps up with the log."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.store import prefault
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.prefault import Prefault

FILE = 64 * 1024


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(prefault, "STEP", 8 * 1024)
    return 8 * 1024


def at_work(tmp_path: Path, script: list[tuple[int, int]]) -> None:
    """Ask at each position of the script and compare what comes back."""

    async def main() -> None:
        log = CommitLog([tmp_path], FILE)
        log.load()
        ahead = Prefault(log)
        for position, expected in script:
            while not log.files or log.files[-1].end <= position:
                log.add_file()
            log.position = position
            assert ahead.ask() == expected
        ahead.close()  # waits for what was asked
        for file in log.files:
            assert file.path.stat().st_blocks == 0
            assert file.read(0, FILE) == bytes(FILE)
        log.close()

    asyncio.run(main())


def test_it_asks_again_one_step_before_the_end_of_what_is_ready(
    tmp_path: Path, small_steps: int
) -> None:
    at_work(tmp_path, [(100, 100 + small_steps), (9000, 9000 + small_steps)])


def test_at_the_end_of_a_file_it_waits_for_the_next(tmp_path: Path, small_steps: int) -> None:
    begin = FILE + 50
    at_work(tmp_path, [(FILE - 5000, FILE), (begin, begin + small_steps)])


def test_a_jump_beyond_what_is_ready_starts_anew(tmp_path: Path, small_steps: int) -> None:
    at_work(tmp_path, [(0, small_steps), (40_000, 40_000 + small_steps)])
