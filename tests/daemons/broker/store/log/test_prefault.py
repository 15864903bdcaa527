"""Pages after the end of the log are touched while page faults are slow, and not otherwise."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.log import commit_log, preallocation
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import data_end
from mq.daemons.broker.store.log.preallocation import Prefault
from tests.waiting import until

MEGABYTE = 1024 * 1024
FILE = 64 * MEGABYTE
DEAR, CHEAP = 2e-9, 0.2e-9  # seconds a byte
WRITES = 16  # one of this many is measured


class Machine:
    """Simulates the cost of touching a byte: each reading of a thread's clock is one megabyte
    later.
    """

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self._now = 0.0

    def thread_time(self) -> float:
        self._now += self.cost * MEGABYTE
        return self._now


Scene = Callable[[CommitLog, Prefault, Machine], Awaitable[None]]
Play = Callable[[float, Scene], None]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of the megabytes that the kernel was asked for."""
    positions: list[int] = []
    real = files.posix_fadvise

    def advise(descriptor: int, position: int, size: int, advice: int) -> None:
        positions.append(position)
        real(descriptor, position, size, advice)

    monkeypatch.setattr(files, "posix_fadvise", advise)
    return positions


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Runs a scene on a log of one file, on a machine with a given cost of a byte."""

    def run(cost: float, scene: Scene) -> None:
        machine = Machine(cost)
        clock = SimpleNamespace(thread_time=machine.thread_time)
        monkeypatch.setattr(commit_log, "clock", clock)
        monkeypatch.setattr(preallocation, "clock", clock)

        async def main() -> None:
            log = CommitLog([tmp_path], FILE)
            log.load()
            log.add_file()
            ahead = Prefault(log)
            await scene(log, ahead, machine)
            ahead.close()
            log.close()

        asyncio.run(main())

    return run


def write(log: CommitLog, megabytes: int = WRITES) -> None:
    for _ in range(megabytes):
        log.write(bytes(MEGABYTE), log.position)
        log.position = log.written = log.position + MEGABYTE


async def worked(ahead: Prefault) -> None:
    """Wait until the thread has reported its result to the event loop."""
    await until(lambda: not ahead.is_busy)


def test_nothing_is_touched_if_page_faults_are_fast(play: Play, asked: list[int]) -> None:
    async def scene(log: CommitLog, ahead: Prefault, machine: Machine) -> None:
        write(log)
        assert ahead.check() == 20 * MEGABYTE
        assert not ahead.is_on and not ahead.is_busy

    play(CHEAP, scene)
    assert asked == []


def test_pages_are_touched_ahead_of_slow_writes_and_stay_a_hole(
    play: Play, asked: list[int]
) -> None:
    async def scene(log: CommitLog, ahead: Prefault, machine: Machine) -> None:
        write(log)
        machine.cost = 16 * DEAR  # for the sixteen megabytes that the thread touches
        assert ahead.check() == 20 * MEGABYTE
        await worked(ahead)
        assert ahead.is_on
        assert asked == [(16 + n) * MEGABYTE for n in range(16)]
        write(log, 4)
        ahead.check()  # continues at its last end
        await worked(ahead)
        assert asked[16:] == [(32 + n) * MEGABYTE for n in range(4)]
        assert data_end(log.files[0].descriptor, 20 * MEGABYTE) == 20 * MEGABYTE

    play(DEAR, scene)


def test_it_ends_when_the_thread_touches_pages_fast(play: Play, asked: list[int]) -> None:
    async def scene(log: CommitLog, ahead: Prefault, machine: Machine) -> None:
        write(log)
        machine.cost = DEAR  # of one megabyte, for sixteen
        ahead.check()
        await worked(ahead)
        assert not ahead.is_on
        write(log, 4)  # none of which is measured
        ahead.check()
        assert not ahead.is_busy

    play(DEAR, scene)
    assert len(asked) == 16


def test_at_the_end_of_a_file_it_waits_for_the_next(play: Play, asked: list[int]) -> None:
    async def scene(log: CommitLog, ahead: Prefault, machine: Machine) -> None:
        machine.cost = 16 * DEAR
        write(log, 48)
        ahead.check()
        await worked(ahead)
        write(log, 16)
        ahead.check()
        assert not ahead.is_busy
        log.add_file()
        ahead.check()
        await worked(ahead)

    play(DEAR, scene)
    assert asked == [(48 + n) * MEGABYTE for n in range(16)] + [n * MEGABYTE for n in range(16)]


def test_a_deleted_file_ends_it_until_writes_are_slow_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(9, "closed")

    async def scene(log: CommitLog, ahead: Prefault, machine: Machine) -> None:
        write(log)
        monkeypatch.setattr(files, "posix_fadvise", fail)
        ahead.check()
        await worked(ahead)
        assert not ahead.is_on
        write(log)
        ahead.check()
        assert ahead.is_busy
        await worked(ahead)

    play(DEAR, scene)
