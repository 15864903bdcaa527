"""A log that is read without a broker: the cost of one damaged place."""

import os
from pathlib import Path

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.tools.offline import Hole, OfflineLog, OpenFiles, ReadOnlyFile
from mq.daemons.broker.store.tools.verification import Queue
from mq.protocol.message import StoredMessage, encode_record
from mq.protocol.record import AT, MAGICS
from tests.daemons.broker.store.stores import record


@pytest.mark.parametrize("magic", MAGICS)
def test_a_damaged_body_that_looks_like_many_records_is_searched_once(
    magic: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Senders choose the content of bodies: 40 KB took minutes in a file of 16 MB."""
    damaged = bytearray(record(0, b"x" + magic * 1000))
    damaged[AT["body_length"] + 4] ^= 1  # the first byte of its body
    whole = record(len(damaged), b"whole")
    (tmp_path / layout.file_name(0)).write_bytes(damaged + whole)
    found: list[int] = []
    find = ReadOnlyFile.find

    def looking(self: ReadOnlyFile, part: bytes, position: int) -> int:
        place = find(self, part, position)
        found.append((self.size if place < 0 else place) - position)
        return place

    monkeypatch.setattr(ReadOnlyFile, "find", looking)
    with OfflineLog([tmp_path]) as log:
        hole, behind, *_ = log.walk()
    assert isinstance(hole, Hole) and hole.size == len(damaged)
    assert not isinstance(behind, Hole) and behind.physical == len(damaged)
    assert sum(found) <= 2 * len(MAGICS) * log.files[0].size


@pytest.mark.parametrize("body_length", [-1, 0, 100])
def test_a_damaged_body_of_heads_that_claim_all_of_the_file_is_read_a_few_times(
    body_length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 40 KB of heads, as many gigabytes were read, and twice the file was in memory."""
    size, count = 16 << 20, 400
    head = bytearray(record(0, b""))
    first = AT["body_length"] + 4
    heads = []
    for number in range(count):
        at = first + number * len(head)
        layout.INT.pack_into(head, AT["size"], size - at - count + number)
        layout.LONG.pack_into(head, AT["physical_offset"], at)
        layout.INT.pack_into(head, AT["body_length"], body_length)
        heads.append(bytes(head))
    damaged = bytearray(record(0, b"".join(heads)))
    damaged[AT["body_crc"]] ^= 1
    whole = record(len(damaged), b"whole")
    (tmp_path / layout.file_name(0)).write_bytes(damaged + whole)
    os.truncate(tmp_path / layout.file_name(0), size)
    sizes: list[int] = []
    read = ReadOnlyFile.read

    def reading(self: ReadOnlyFile, position: int, size: int) -> bytes:
        content = read(self, position, size)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(ReadOnlyFile, "read", reading)
    with OfflineLog([tmp_path]) as log:
        hole, behind, *_ = log.walk()
    assert isinstance(hole, Hole) and hole.size == len(damaged)
    assert not isinstance(behind, Hole) and behind.physical == len(damaged)
    assert max(sizes) <= 1 << 20
    assert sum(sizes) <= 3 * size


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("damage", ["", "first", "last", "tail"])
def test_records_longer_than_what_is_held_of_one_are_read_whole(
    damage: str, host: str, tmp_path: Path
) -> None:
    body = os.urandom((5 << 20) + 3)
    message = StoredMessage(
        "Topic", body, {"UNIQ_KEY": "A"}, born_host=(host, 1), store_host=(host, 2)
    )
    message.physical_offset = len(small := record(0, b"small"))
    long = encode_record(message)
    behind = record(len(small) + len(long), b"behind")
    log = bytearray(small + long + behind)
    place = {
        "first": len(small) + long.index(body),
        "last": len(small) + long.index(body) + len(body) - 1,
        "tail": len(small) + long.index(body) + len(body),
    }.get(damage)
    if place is not None:
        log[place] ^= 1
    (tmp_path / layout.file_name(0)).write_bytes(log)
    os.truncate(tmp_path / layout.file_name(0), 16 << 20)
    with OfflineLog([tmp_path]) as offline:
        one, two, three, *_ = offline.walk()
    assert not isinstance(one, Hole) and one.size == len(small)
    assert isinstance(two, Hole) == bool(damage) and two.size == len(long)
    assert isinstance(two, Hole) or two.properties == one.properties
    assert not isinstance(three, Hole) and three.size == len(behind)


def test_an_error_reports_a_log_that_is_shortened_while_it_is_read(tmp_path: Path) -> None:
    """As by a broker that truncates its log on a full disk; with a mapping the process would
    end."""
    log = bytearray()
    while len(log) < 4 << 20:
        log += record(len(log), b"x" * 4096)
    path = tmp_path / layout.file_name(0)
    path.write_bytes(log)
    with OfflineLog([tmp_path]) as offline:
        walk = offline.walk()
        next(walk)
        os.truncate(path, 8192)
        with pytest.raises(OSError, match="made shorter while it was read"):
            list(walk)


def test_a_file_that_was_replaced_while_it_was_closed_is_never_read(tmp_path: Path) -> None:
    path, other = tmp_path / layout.file_name(0), tmp_path / "other"
    path.write_bytes(b"old")
    other.write_bytes(b"new")
    with OpenFiles() as opened:
        file = ReadOnlyFile(path, 0, opened)
        file.close()  # as for the file that was opened longest ago
        other.rename(path)
        for _ in range(2):
            with pytest.raises(OSError, match="removed or replaced while it was read"):
                file.read(0, 3)


def test_a_log_that_cannot_be_opened_whole_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / layout.file_name(0)).write_bytes(b"log")
    (tmp_path / layout.file_name(3)).symlink_to("nowhere")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        OfflineLog([tmp_path])
    assert os.listdir("/proc/self/fd") == before


def test_records_written_while_a_store_is_read_are_not_damage(tmp_path: Path) -> None:
    """A file is read in pieces: the end of one is older than the current content."""
    first = record(0, b"first")
    second = record(len(first), b"second")
    path = tmp_path / layout.file_name(0)
    path.write_bytes(first + bytes(1 << 20))
    entries = tmp_path / "entries"
    entries.write_bytes(layout.ENTRY.pack(0, len(first), 0) + bytes(layout.ENTRY_SIZE * 9))

    def append(file: Path, data: bytes, position: int) -> None:
        with file.open("r+b") as opened:
            opened.seek(position)
            opened.write(data)

    with OfflineLog([tmp_path]) as log, OpenFiles() as opened:
        queue = Queue("Topic", 0, tmp_path, [ReadOnlyFile(entries, 0, opened)])
        assert queue.entry(0) == (0, len(first), 0)
        append(entries, layout.ENTRY.pack(len(first), len(second), 0), layout.ENTRY_SIZE)
        assert queue.entry(1) == (len(first), len(second), 0)
        walk = log.walk()
        assert next(walk) == log.record_at(0)
        append(path, second, len(first))
        assert [item for item in walk if isinstance(item, Hole)] == []
        found = log.record_at(len(first))
        assert found is not None and found.size == len(second)
