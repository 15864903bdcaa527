"""Epochs: the file, and the common part of two lists."""

import zlib
from pathlib import Path

import pytest

from mq.daemons.broker.replication.epochs import NO_END, Epoch, Epochs, decode, encode
from mq.daemons.broker.store.replica.replica import NotReplicated


def epochs_of(folder: Path, *epochs: tuple[int, int]) -> Epochs:
    found = Epochs(folder / "epochFileCheckpoint")
    (folder / "epochFileCheckpoint").write_bytes(encode([Epoch(*each) for each in epochs]))
    found.load(1 << 40)
    return found


def test_the_file_is_as_java_writes_it(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path / "epochFileCheckpoint")
    epochs.load(0)
    epochs.begin(7, 0, 0, is_whole=True)
    epochs.begin(8, 0, 8000, is_whole=True)
    lines = b"7-0\n8-8000\n"
    checksum = zlib.crc32(lines) & 0x7FFFFFFF
    assert (tmp_path / "epochFileCheckpoint").read_bytes() == b"2\n%d\n" % checksum + lines
    assert (tmp_path / "epochFileCheckpoint.bak").read_bytes().endswith(b"\n7-0\n")


@pytest.mark.parametrize(
    "data",
    [
        b"2\n0\n7-0\n",
        b"1\n5\n7-0\n",
        b"2\n0\n8-0\n7-5\n",
        b"2\n0\n7-5\n8-5\n",
        b"1\n0\n7\n",
        b"x\n0\n7-0\n",
        b"1",
        b"1\n0\n\xff-0\n",
    ],
)
def test_the_backup_replaces_a_damaged_file(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        decode(data)
    (tmp_path / "epochFileCheckpoint").write_bytes(data)
    (tmp_path / "epochFileCheckpoint.bak").write_bytes(b"1\n0\n7-0\n")
    epochs = Epochs(tmp_path / "epochFileCheckpoint")
    epochs.load(100)
    assert epochs.all == [(7, 0)]


def test_an_epoch_ends_where_the_next_starts(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 100), (3, 200))
    assert epochs.at(99) is None
    assert epochs.at(100) == epochs.at(199) == ((1, 100), 200)
    assert epochs.at(200) == ((3, 200), NO_END)


@pytest.mark.parametrize(
    ("own", "own_end", "theirs", "their_end", "point"),
    [
        ([(1, 0)], 50, [(1, 0)], 80, 50),  # behind
        ([(1, 0)], 80, [(1, 0)], 50, 50),  # ahead
        ([(1, 0)], 80, [(1, 0), (2, 60)], 90, 60),  # it has more of an epoch
        ([(1, 0), (2, 60)], 80, [(1, 0), (3, 60)], 90, 60),
        ([(1, 0), (2, 60)], 80, [(1, 0), (3, 50)], 90, 50),
        ([(1, 0), (2, 60)], 80, [(1, 0), (2, 70)], 90, 60),  # one number, two masters
        ([(1, 0), (2, 60)], 80, [(2, 60), (3, 75)], 90, 75),  # the older ones were dropped there
        ([(1, 0)], 80, [(2, 60)], 90, None),
        ([], 80, [(1, 0)], 90, None),
    ],
)
def test_two_logs_are_equal_up_to_the_end_of_the_last_common_epoch(
    own: list[tuple[int, int]],
    own_end: int,
    theirs: list[tuple[int, int]],
    their_end: int,
    point: int | None,
    tmp_path: Path,
) -> None:
    epochs = epochs_of(tmp_path, *own)
    assert epochs.common_point([Epoch(*each) for each in theirs], their_end, own_end) == point


def test_an_epoch_without_records_is_replaced(tmp_path: Path) -> None:
    """Otherwise two masters write in one epoch, and their logs look equal."""
    epochs = epochs_of(tmp_path, (1, 0), (2, 60))
    epochs.begin(3, 0, 60, is_whole=True)
    assert epochs.all == [(1, 0), (3, 60)]


def test_a_master_continues_its_epoch_unless_it_has_lost_a_part_of_its_log(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 0), (2, 60))
    epochs.begin(2, 0, 90, is_whole=True)
    assert epochs.all == [(1, 0), (2, 60)]
    epochs.begin(2, 0, 90, is_whole=False)
    assert epochs.all == [(1, 0), (2, 90)]


def test_the_first_epoch_of_an_existing_log_starts_with_it(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path / "epochFileCheckpoint")
    epochs.begin(1, 4096, 9000, is_whole=True)
    assert epochs.all == [(1, 4096)]


def test_epochs_after_the_end_of_the_log_are_dropped_by_a_start(tmp_path: Path) -> None:
    """A kill between the truncation of the log and that of the list leaves them."""
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(encode([Epoch(1, 0), Epoch(2, 60), Epoch(3, 90)]))
    epochs = Epochs(path)
    epochs.load(70)
    assert epochs.all == decode(path.read_bytes()) == [(1, 0), (2, 60)]


def test_a_slave_follows_its_master_from_epoch_to_epoch(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 0))
    epochs.follow(1, 0)
    epochs.follow(3, 60)
    for number, start in ((2, 70), (3, 70), (4, 50)):
        with pytest.raises(NotReplicated):
            epochs.follow(number, start)
    assert epochs.all == [(1, 0), (3, 60)]


def test_a_slave_with_an_equal_log_adopts_the_masters_epochs(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 0), (2, 60), (4, 90))
    epochs.adopt([Epoch(2, 60), Epoch(3, 80), Epoch(5, 100)], 100)
    assert epochs.all == [(1, 0), (2, 60), (3, 80)]


def test_epochs_without_remaining_records_are_dropped(tmp_path: Path) -> None:
    epochs = epochs_of(tmp_path, (1, 0), (2, 60), (3, 90))
    epochs.drop_before(60)
    assert epochs.all == [(2, 60), (3, 90)]
    epochs.drop_before(1000)
    assert epochs.all == [(3, 90)]
