"""Blocks are allocated in front of the end of a log that is written to fast, without changing
reads.
"""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.log import preallocation
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import data_end, extent_end
from mq.daemons.broker.store.log.preallocation import Allocation, NextFile
from tests.waiting import until

MEGABYTE = 1024 * 1024
FILE = 64 * MEGABYTE


class Scene:
    """A log with one file, driven second by second."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(preallocation, "clock", SimpleNamespace(monotonic=lambda: self.now))
        self.log = CommitLog([folder], FILE)
        self.log.load()
        self.log.add_file()
        self.allocation = Allocation(self.log)

    def second(self, written: int) -> bool:
        """Write bytes for a second; returns whether blocks were requested then."""
        self.now += 1
        self.log.position = self.log.written = self.log.written + written
        work = self.allocation.due()
        if work is not None:
            work()
        return work is not None

    def blocks(self, number: int = 0) -> int:
        """Bytes on the disk, in whole megabytes, because a block may list many pieces."""
        taken = self.log.files[number].path.stat().st_blocks * 512
        return taken - taken % MEGABYTE


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    probe = tmp_path / "probe"
    probe.touch()
    with probe.open("r+b") as file:
        try:
            files.reserve(file.fileno(), 0, 4096)
        except OSError as error:
            pytest.skip(f"this file system reserves nothing: {error}")
    probe.unlink()
    found = Scene(tmp_path, monkeypatch)
    yield found
    found.log.close()


def test_a_log_with_little_to_write_takes_no_more_than_what_is_in_it(scene: Scene) -> None:
    assert not any(scene.second(7 * MEGABYTE) for _ in range(5))
    assert scene.blocks() == 0


def test_blocks_for_four_seconds_are_taken_when_half_of_them_are_used(scene: Scene) -> None:
    assert scene.second(5 * MEGABYTE) is False
    assert scene.second(9 * MEGABYTE)
    assert scene.blocks() == 36 * MEGABYTE
    assert not scene.second(9 * MEGABYTE)
    assert not scene.second(9 * MEGABYTE)  # half of them are left
    assert scene.second(9 * MEGABYTE)
    assert scene.blocks() == 50 * MEGABYTE  # and never past the end of the file


def test_reserved_blocks_read_as_zeros_and_are_not_data(scene: Scene) -> None:
    file = scene.log.files[0]
    file.write(b"x" * 5000, 0)
    file.sync()
    assert scene.second(10 * MEGABYTE)
    assert file.size == file.path.stat().st_size == FILE
    assert data_end(file.descriptor) == 5000
    assert extent_end(file.descriptor) <= 8192
    assert file.read(4999, 3) == b"x\0\0"


def test_a_file_created_beforehand_keeps_its_first_blocks(
    scene: Scene,
) -> None:
    async def main() -> None:
        following = NextFile(scene.log, scene.allocation)
        assert scene.second(20 * MEGABYTE)
        scene.second(36 * MEGABYTE)
        following.check()
        await until(lambda: following.is_ready)
        scene.log.add_file()
        assert scene.blocks(1) == FILE  # more than a second's, which is all of it
        assert not scene.second(30 * MEGABYTE)
        following.close()

    asyncio.run(main())


def test_nothing_is_allocated_on_a_nearly_full_disk(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "space", lambda path: files.Space(1 << 40, 300 * MEGABYTE))
    scene.second(10 * MEGABYTE)
    assert scene.blocks() == 0


def test_a_file_system_that_cannot_do_it_costs_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, position: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(files, "reserve", refuse)
    scene.second(10 * MEGABYTE)
    assert scene.blocks() == 0
