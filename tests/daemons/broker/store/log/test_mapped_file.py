"""Files of a fixed size and the descriptors of many."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import (
    DescriptorCache,
    LogReader,
    MappedFile,
    data_end,
    extent_end,
)
from tests.daemons.broker.store.stores import open_files


def test_a_new_file_has_its_whole_length_as_a_hole(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 1 << 20, 1 << 20)
    status = os.stat(tmp_path / "f")
    assert (status.st_size, status.st_blocks, file.end) == (1 << 20, 0, 2 << 20)
    file.delete()
    assert not (tmp_path / "f").exists()


def test_what_is_written_is_seen_in_the_view_and_by_reads(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 0, 8192)
    view = file.view
    file.write(b"before", 100)
    file.write(memoryview(b"behind"), 8186)
    assert (bytes(view[100:106]), file.read(8186, 100)) == (b"before", b"behind")
    file.sync()
    file.close()


def test_a_slice_outlives_its_file(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 0, 8192)
    file.write(b"kept", 4000)
    part = file.view[4000:4004]
    file.delete()
    file.close()
    assert bytes(part) == b"kept"


def test_clearing_keeps_the_data_before_and_leaves_zeros_after(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 0, 8192)
    file.write(b"x" * 8192, 0)
    view = file.view
    file.clear_after(5000)
    assert view == b"x" * 5000 + bytes(3192)
    file.close()


def test_a_file_that_is_cleared_keeps_its_length_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash, or a failing disk, between two calls leaves a file that the next start accepts."""
    file = MappedFile(tmp_path / "f", 0, 8192)
    file.write(b"x" * 8192, 0)
    sizes = []

    def seen(name: str) -> None:
        real = getattr(files, name)

        def call(descriptor: int, *arguments: Any) -> Any:
            result = real(descriptor, *arguments)
            sizes.append((tmp_path / "f").stat().st_size)
            return result

        monkeypatch.setattr(files, name, call)

    seen("ftruncate")
    seen("pwrite")
    file.clear_after(5000)
    assert sizes == [8192] * len(sizes) != []
    file.close()


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = MappedFile(tmp_path / "f", 0, 100)
    real = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(files, "pwrite", lambda fd, data, at: real(fd, data[:3], at))
        file.write(b"0123456789", 50)
    assert file.read(50, 10) == b"0123456789"
    file.close()


def test_reading_a_closed_file_is_an_error(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 0, 100)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 10)


def test_a_file_closed_while_it_is_read_gives_no_bytes_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MappedFile(tmp_path / "f", 0, 100)
    real = os.pread

    def read_late(descriptor: int, size: int, position: int) -> bytes:
        file.close()  # as the event loop does while a thread is about to make the call
        other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
        assert other == descriptor
        os.pwrite(other, b"secret", 0)
        try:
            return real(descriptor, size, position)
        finally:
            os.close(other)

    with monkeypatch.context() as patch:
        patch.setattr(files, "pread", read_late)
        with pytest.raises(OSError, match="closed while it was read"):
            file.read(0, 6)


def test_no_descriptor_leaks_if_a_file_cannot_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cache = DescriptorCache(4)
    log = CommitLog([tmp_path], 4096)
    before = open_files(tmp_path)
    for name in ("ftruncate", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(files, name, fail)
            if name == "ftruncate":
                with pytest.raises(OSError, match="No space"):
                    cache.open(tmp_path / "queue", 100)
            with pytest.raises(OSError, match="No space"):
                log.add_file()
    assert (open_files(tmp_path), log.files) == (before, [])
    assert log.add_file().size == 4096
    log.close()


def test_the_least_used_descriptor_is_closed_first(tmp_path: Path) -> None:
    cache = DescriptorCache(2)
    a, b, c = (tmp_path / name for name in "abc")
    first = cache.open(a, 10)
    cache.open(b, 10)
    assert cache.open(a) == first
    cache.open(c, 10)
    assert os.fstat(first).st_size == 10  # b was evicted
    cache.forget(a)
    cache.forget(a)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first)
    with pytest.raises(FileNotFoundError):
        cache.open(tmp_path / "missing")
    cache.close()


def test_a_file_is_not_read_again_for_each_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that searched a damaged place took 0.1 ms for each candidate: two minutes for a body
    of 4 MB of them.
    """
    file = MappedFile(tmp_path / "f", 0, 1 << 20)
    file.write(b"part" * 1000, 100)
    file.write(b"part", 1 << 19)  # after a hole
    read = 0
    pread = files.pread

    def reading(descriptor: int, size: int, position: int) -> bytes:
        nonlocal read
        data = pread(descriptor, size, position)
        read += len(data)
        return data

    monkeypatch.setattr(files, "pread", reading)
    places, position = [], 0
    reader = LogReader(file)
    while (place := reader.find(b"part", position)) >= 0:
        places.append(place)
        position = place + 1
    assert places == [*range(100, 4100, 4), 1 << 19]
    assert read <= file.size
    file.close()


def test_an_error_of_seek_data_ends_no_file_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data after the truncated end was neither kept nor cleared, and reappeared as records."""
    file = MappedFile(tmp_path / "f", 0, 1 << 20)
    file.write(b"data", 8192)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "lseek", fail)
    for ask in (data_end, extent_end):
        with pytest.raises(OSError, match="Input/output error"):
            ask(file.descriptor, 0)
    file.close()
