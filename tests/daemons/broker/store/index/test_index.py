"""The key index: lookups, file content, full files, and damage."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.machine import files
from mq.daemons.broker.store.index.index import PUT, Index, key_hash
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.protocol.tags import java_hash
from tests.conftest import share
from tests.daemons.broker.store.stores import open_files, put, with_store

SLOTS = 10
ITEMS = 8  # room for 7: item 0 is never used
FOREVER = 1 << 62
# java.lang.String.hashCode of "T#a": 84 * 31 * 31 + 35 * 31 + 97. In slot 6 of 10.
HASH_A = 81906
NOW = 1_700_000_000_000


def index_at(folder: Path, items: int = ITEMS) -> Index:
    index = Index(folder / "index", SLOTS, items)
    index.load()
    return index


def put_keys(index: Index, topic: str, keys: Sequence[str], physical: int, timestamp: int) -> None:
    index.put(b"".join(PUT.pack(key_hash(topic, key), physical) for key in keys), timestamp)


def find(index: Index, key: str, begin: int = 0, end: int = FOREVER, most: int = 32) -> list[int]:
    return index.find("T", key, most, begin, end)


def only_file(folder: Path) -> Path:
    (path,) = (folder / "index").iterdir()
    return path


# finding ----------------------------------------------------------------------------------------


def test_a_key_is_found_by_topic_newest_first(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    put_keys(index, "T", ("a", "b"), 100, NOW)
    put_keys(index, "U", ("a",), 200, NOW)
    put_keys(index, "T", ("a",), 300, NOW)
    assert find(index, "a") == [300, 100]
    assert find(index, "b") == [100]
    assert find(index, "c") == []
    assert index.find("U", "a", 32, 0, FOREVER) == [200]
    assert find(index, "a", most=1) == [300]
    assert (index.end_offset, index.end_timestamp) == (300, NOW)
    index.close()


def test_a_time_range_is_kept_to_the_second(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    for seconds in (0, 10, 20):
        put_keys(index, "T", ("a",), seconds, NOW + seconds * 1000 + 999)
    assert find(index, "a", NOW + 999, NOW + 10_999) == [10, 0]
    assert find(index, "a", NOW + 10_999, NOW + 10_999) == [10]
    assert find(index, "a", NOW + 11_000, NOW + 20_000) == []
    assert find(index, "a", NOW + 11_000, FOREVER) == [20]
    assert find(index, "a", 0, NOW) == []
    index.close()


def test_keys_with_one_hash_are_both_returned_and_those_in_one_slot_are_distinguished(
    tmp_path: Path,
) -> None:
    index = index_at(tmp_path)
    assert key_hash("T", "Aa") == key_hash("T", "BB")  # as java.lang.String.hashCode
    assert key_hash("T", "a") % SLOTS == key_hash("T", "k") % SLOTS  # one slot, two hashes
    put_keys(index, "T", ("Aa",), 1, NOW)
    put_keys(index, "T", ("BB",), 2, NOW)
    put_keys(index, "T", ("a",), 3, NOW)
    put_keys(index, "T", ("k",), 4, NOW)
    assert find(index, "Aa") == find(index, "BB") == [2, 1]
    assert (find(index, "a"), find(index, "k")) == ([3], [4])
    index.close()


@given(st.text(), st.lists(st.text(max_size=4)))
def test_the_hash_of_a_key_is_that_of_java_for_topic_and_key(key: str, ends: list[str]) -> None:
    for end in ["", *ends]:  # several with one beginning
        expected = abs(java_hash(f"Topic#{key}{end}"))
        assert key_hash("Topic", key + end) == (expected if expected < 1 << 31 else 0)


def test_the_hash_without_a_positive_counterpart_is_zero() -> None:
    # A hashCode of -2^31 has no absolute value among Java's ints.
    for length in range(1, 8):
        text = _text_with_hash(-(1 << 31), "T#", length)
        if text is not None:
            assert key_hash("T", text) == 0
            return
    pytest.fail("no text found")


def _text_with_hash(wanted: int, prefix: str, length: int) -> str | None:
    """Printable text that, after a prefix, has a given Java hash code."""
    value = 0
    for character in prefix:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    rest = (wanted - value * pow(31, length, 1 << 32)) & 0xFFFFFFFF
    low = sum(0x30 * 31**power for power in range(length))
    for total in range(rest, 31**length * 0x50 + low, 1 << 32):
        digits, left = [], total - low
        for power in reversed(range(length)):
            digit = min(left // 31**power, 0x4E)
            digits.append(digit)
            left -= digit * 31**power
        if total >= low and left == 0:
            return "".join(chr(0x30 + digit) for digit in digits)
    return None


def test_a_message_with_a_repeated_key_is_returned_once(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "T", 0, b"body", keys=("a", "a"))
        assert len(query_by_key(store, "T", "a", 32, 0, FOREVER)[2]) == 1

    with_store(tmp_path, work)


# bytes ------------------------------------------------------------------------------------------


def test_header_slots_and_items_lie_as_in_java(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    put_keys(index, "T", ("a",), 0x1000, NOW)
    put_keys(index, "T", ("b", "a"), 0x2000, NOW + 5_500)
    index.save_headers()
    raw = only_file(tmp_path).read_bytes()
    assert len(raw) == 40 + 4 * SLOTS + 20 * ITEMS
    assert raw[:40].hex() == (
        "0000018bcfe56800"  # the first message's time
        "0000018bcfe57d7c"  # the last one's
        "0000000000001000"
        "0000000000002000"
        "00000002"  # slots in use
        "00000004"  # items and one
    )
    slots = struct.unpack(">10i", raw[40:80])
    assert slots == (0, 0, 0, 0, 0, 0, 3, 2, 0, 0)
    assert (
        raw[80:160].hex()
        == (
            "00"
            * 20  # item 0 is never used
            + "00013ff2"
            "0000000000001000"
            "00000000"
            "00000000"
            "00013ff3"
            "0000000000002000"
            "00000005"
            "00000000"
            "00013ff2"
            "0000000000002000"
            "00000005"
            "00000001"
        )
    )
    index.close()


def test_a_file_is_named_by_its_time_in_seventeen_digits(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    put_keys(index, "T", ("a",), 1, NOW)
    name = only_file(tmp_path).name
    assert len(name) == 17 and name.isdigit() and name.startswith("20")
    index.close()


# full files -------------------------------------------------------------------------------------


def test_a_full_file_is_followed_by_another_that_begins_where_it_ended(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    for number in range(20):
        put_keys(index, "T", ("a",), number, NOW + number * 1000)
    assert [file.count for file in index.files] == [8, 8, 7]
    names = [file.path.name for file in index.files]
    assert names == sorted(set(names))  # though all were made in one millisecond
    assert find(index, "a") == list(reversed(range(20)))
    assert find(index, "a", NOW + 3_000, NOW + 8_000) == [8, 7, 6, 5, 4, 3]
    index.close()
    paths = sorted((tmp_path / "index").iterdir())
    # The difference of a file's first item counts from the end of the previous file.
    assert paths[1].read_bytes()[100:120] == struct.pack(">iqii", HASH_A, 7, 1, 0)
    again = index_at(tmp_path)
    assert [file.path for file in again.files] == paths
    assert find(again, "a") == list(reversed(range(20)))
    again.close()


def test_many_put_at_once_lie_in_the_files_as_one_by_one(tmp_path: Path) -> None:
    items = [PUT.pack(key_hash("T", ("a", "b", "k")[number % 3]), number) for number in range(24)]
    stored = []
    for name, step in (("at once", 24), ("in pieces", 5), ("one by one", 1)):
        index = index_at(tmp_path / name)
        for start in range(0, len(items), step):
            index.put(b"".join(items[start : start + step]), NOW)
        paths = [file.path for file in index.files]
        index.close()
        stored.append([path.read_bytes() for path in paths])
        assert len(stored[-1]) == 4
    assert stored[0] == stored[1] == stored[2]


def test_a_clock_that_is_set_back_does_not_change_the_order_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    future = tmp_path / "index" / "29991231235959999"
    future.write_bytes(bytes(40 + 4 * SLOTS + 20 * ITEMS))
    index = index_at(tmp_path)
    for number in range(8):
        put_keys(index, "T", ("a",), number, NOW)
    assert [file.path.name for file in index.files] == ["29991231235959999", "29991231235960000"]
    index.close()
    index = index_at(tmp_path)
    assert (find(index, "a")[0], index.end_offset) == (7, 7)
    index.close()


def test_old_files_are_removed_but_never_the_last(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    for number in range(20):
        put_keys(index, "T", ("a",), number * 10, NOW)
    assert index.remove_before(60) == 0  # the first file ends with 60
    assert index.remove_before(61) == 1
    assert index.remove_before(10_000) == 1
    assert find(index, "a") == [190, 180, 170, 160, 150, 140]
    assert only_file(tmp_path) == index.files[0].path
    index.close()


def test_a_file_of_another_size_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20230101000000000").write_bytes(b"short")
    (tmp_path / "index" / "notes").write_bytes(b"x")
    index = index_at(tmp_path)
    assert index.files == []
    put_keys(index, "T", ("a",), 1, NOW)
    assert find(index, "a") == [1]
    index.close()
    assert (tmp_path / "index" / "20230101000000000").read_bytes() == b"short"


# taking back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 6, 7, 8, 13, 14, 15, 20])
def test_a_truncation_removes_the_newest_items_of_all_files(tmp_path: Path, keep: int) -> None:
    index = index_at(tmp_path)
    for number in range(20):
        put_keys(index, "T", (("a", "b", "k")[number % 3],), number, NOW + number * 1000)
    assert index.cut(keep) == 20 - keep
    kept = [*find(index, "a"), *find(index, "b"), *find(index, "k")]
    assert sorted(kept) == list(range(keep))
    assert index.end_offset == keep - 1
    for number in range(keep, 20):
        put_keys(index, "T", ("a",), number, NOW + number * 1000)
    assert find(index, "a")[: 20 - keep] == list(reversed(range(keep, 20)))
    index.close()


def test_a_truncation_continues_before_an_empty_last_file(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    for number in range(7):
        put_keys(index, "T", ("a",), number, NOW)
    index.close()
    empty = tmp_path / "index" / "29991231235959999"
    empty.write_bytes(bytes(40 + 4 * SLOTS + 20 * ITEMS))
    index = index_at(tmp_path)
    assert index.cut(3) == 4
    assert find(index, "a") == [2, 1, 0]
    index.close()


@pytest.mark.parametrize("counted", [0, 1, 4])
def test_items_that_the_header_does_not_count_are_found_by_a_truncation(
    tmp_path: Path, counted: int
) -> None:
    index = index_at(tmp_path)
    for number in range(6):
        put_keys(index, "T", ("a",), number * 10 + 1, NOW)
    index.close()
    with open(only_file(tmp_path), "r+b") as file:
        file.seek(36)
        file.write(struct.pack(">i", counted))
    index = index_at(tmp_path)
    index.cut(31)
    assert find(index, "a") == [21, 11, 1]
    index.close()


# damage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 0, 1, 3, 5, 6, 7, 8, 0x7FFFFFFF, -(1 << 31)])
@pytest.mark.parametrize("place", ["slot", "previous", "count"])
def test_a_damaged_chain_ends_and_new_items_are_found(
    tmp_path: Path, place: str, value: int
) -> None:
    index = index_at(tmp_path)
    for number in range(5):
        put_keys(index, "T", ("a",), number, NOW)
    index.close()
    at = {"slot": 40 + 4 * 6, "previous": 80 + 20 * 5 + 16, "count": 36}[place]
    with open(only_file(tmp_path), "r+b") as file:
        file.seek(at)
        file.write(struct.pack(">i", value))
    index = index_at(tmp_path)
    assert set(find(index, "a")) <= set(range(5))
    assert len(find(index, "a")) <= 7
    put_keys(index, "T", ("a",), 99, NOW)
    assert find(index, "a")[0] == 99
    index.cut(50)
    assert 99 not in find(index, "a")
    index.close()


@pytest.mark.more
@pytest.mark.parametrize("seed", range(share(20)))
def test_noise_in_a_file_neither_loops_nor_raises(tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    (tmp_path / "index").mkdir()
    path = tmp_path / "index" / "20230101000000000"
    path.write_bytes(noise.randbytes(40 + 4 * SLOTS + 20 * ITEMS))
    index = index_at(tmp_path)
    for key in ("a", "b", "k"):
        assert len(find(index, key)) <= ITEMS
    put_keys(index, "T", ("a",), 5, NOW)
    index.cut(0)
    index.close()


def test_a_full_disk_is_an_error_and_the_message_can_be_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    index = index_at(tmp_path)
    before = open_files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "posix_fallocate", no_space)
        with pytest.raises(OSError, match="No space left"):
            put_keys(index, "T", ("a",), 1, NOW)
    assert (index.files, open_files(tmp_path)) == ([], before)
    put_keys(index, "T", ("a",), 1, NOW)
    with monkeypatch.context() as patch:
        patch.setattr(files, "posix_fallocate", no_space)
        with pytest.raises(OSError, match="No space left"):
            for number in range(2, 9):
                put_keys(index, "T", ("a",), number, NOW)
    for number in range(2, 9):
        put_keys(index, "T", ("a",), number, NOW)
    assert set(find(index, "a")) == set(range(1, 9))
    index.close()
