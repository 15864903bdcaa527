"""Stores that were killed or damaged, and what a start makes of them."""

import asyncio
import errno
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from mq.daemons.broker.store import append, layout, recovery
from mq.daemons.broker.store.errors import StoreLoadError, StoreRefused
from mq.daemons.broker.store.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from mq.protocol.message import decode_record
from mq.protocol.properties import MAX_LENGTH
from mq.protocol.record import AT, SMALLEST_RECORD
from tests.daemons.broker.store.damaged_copies import (
    all_bodies,
    body,
    damaged_copy,
    expected,
    fill,
    log_file_of,
)
from tests.daemons.broker.store.stores import (
    HOST,
    LOG_FILE,
    bodies,
    crashed_copy,
    put,
    with_store,
)
from tests.daemons.broker.store.stores import reader as reader  # a fixture

pytestmark = pytest.mark.usefixtures("reader")


def test_a_clean_stop_keeps_every_message_and_reads_nothing_again(tmp_path: Path) -> None:
    with_store(tmp_path, fill)

    async def check(store: MessageStore) -> None:
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]
        assert not store.report.crashed
        assert store.report.records == 0

    with_store(tmp_path, check)
    assert not (tmp_path / layout.ABORT_FILE).exists()


def test_a_killed_store_has_every_message_once_and_finds_it_by_key(tmp_path: Path) -> None:
    crashed, _ = damaged_copy(tmp_path)

    async def check(store: MessageStore) -> None:
        assert store.report.crashed and not store.report.machine_crashed
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]
        for number in range(60):
            _, _, records = query_by_key(store, "orders", f"k{number}", 32, 0, 1 << 62)
            assert [body(number) in record for record in records] == [True]
        await put(store, "orders", 0, b"after")

    with_store(crashed, check)

    async def check_again(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [*expected(60, 0), b"after"]

    with_store(crashed, check_again)


def test_a_crash_where_no_boot_has_an_id_is_taken_for_one_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, _ = damaged_copy(tmp_path)
    (crashed / layout.ABORT_FILE).write_bytes(b"")  # as Java's is everywhere
    monkeypatch.setattr(recovery, "BOOT_ID", tmp_path / "absent")

    async def check(store: MessageStore) -> None:
        assert store.report.machine_crashed
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)


def test_a_crash_of_the_machine_makes_the_index_again(tmp_path: Path) -> None:
    crashed, _ = damaged_copy(tmp_path)
    (crashed / layout.ABORT_FILE).write_bytes(b"another boot")
    (index_file,) = (crashed / "index").iterdir()
    index_file.write_bytes(bytes(index_file.stat().st_size))  # its pages never reached the disk

    async def check(store: MessageStore) -> None:
        assert store.report.machine_crashed
        for number in range(60):
            _, _, records = query_by_key(store, "orders", f"k{number}", 32, 0, 1 << 62)
            assert [body(number) in record for record in records] == [True]

    with_store(crashed, check)


@pytest.mark.parametrize("cut", [8, 50, 91, 120])
def test_a_record_cut_short_is_dropped_and_reported(tmp_path: Path, cut: int) -> None:
    crashed, starts = damaged_copy(tmp_path)
    path = log_file_of(crashed, starts[-1])
    with open(path, "r+b") as file:
        file.truncate(starts[-1] % 4096 + cut)
        file.truncate(4096)

    async def check(store: MessageStore) -> None:
        assert store.max_physical_offset == starts[-1]
        (damage,) = store.report.damages
        assert damage.offset == starts[-1] and damage.path == str(path)
        assert await all_bodies(store) == [expected(59, 0), expected(59, 1)]

    with_store(crashed, check)
    assert (crashed / "damaged" / layout.file_name(starts[-1])).exists()


def test_a_flipped_bit_in_a_body_ends_the_log_there_and_keeps_what_was_cut(tmp_path: Path) -> None:
    crashed, starts = damaged_copy(tmp_path)
    path = log_file_of(crashed, starts[40])
    data = bytearray(path.read_bytes())
    data[starts[40] % 4096 + 95] ^= 0x10
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert store.max_physical_offset == starts[40]
        assert "checksum" in store.report.damages[0].why
        assert await all_bodies(store) == [expected(40, 0), expected(40, 1)]
        await put(store, "orders", 0, b"new")
        assert bodies(store, "orders", 0)[-1] == b"new"

    with_store(crashed, check)
    kept = (crashed / "damaged" / layout.file_name(starts[40])).read_bytes()
    assert kept.startswith(bytes(data[starts[40] % 4096 : starts[40] % 4096 + 200]))


def test_messages_that_only_the_queues_still_know_are_reported(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> list[int]:
        await fill(store, 10)
        await store.checkpointer.checkpoint()
        crashed_copy(store, tmp_path / "crashed")
        return [entry[0] for n in range(5) if (entry := store.queue("orders", 1).entry(n))]

    starts = with_store(tmp_path / "store", work)
    with open(log_file_of(tmp_path / "crashed", 0), "r+b") as file:
        file.truncate(starts[-1])
        file.truncate(4096)

    async def check(store: MessageStore) -> None:
        (damage,) = store.report.damages
        assert damage.offset == starts[-1] and "know of messages" in damage.why
        assert await all_bodies(store) == [expected(10, 0), expected(9, 1)]

    with_store(tmp_path / "crashed", check)


@pytest.mark.parametrize("what", ["missing", "zeros", "noise", "truncated", "flipped"])
def test_damaged_queue_files_are_made_again_from_the_log(tmp_path: Path, what: str) -> None:
    crashed, _ = damaged_copy(tmp_path)
    path = crashed / "consumequeue" / "orders" / "0" / layout.file_name(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    good = path.read_bytes() if path.exists() else bytes(400)
    if what == "missing":
        path.unlink(missing_ok=True)
    elif what == "truncated":
        path.write_bytes(good[:130])
    elif what == "flipped":
        path.write_bytes(good[:7] + bytes([good[7] ^ 0xFF]) + good[8:])
    else:
        path.write_bytes(bytes(400) if what == "zeros" else bytes(range(1, 201)) * 2)

    async def check(store: MessageStore) -> None:
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)


def shown(store: MessageStore) -> list[bytes]:
    """The bodies of the messages of a queue, which may have gaps."""
    queue, found = store.queue("orders", 0), []
    for index in range(queue.minimum, queue.readable):
        entry = store.entries.at("orders", 0, index)
        if entry is not None:
            found.append(decode_record(store.record_at(entry[0]) or b"").body)
    return found


@pytest.mark.parametrize("bit", [0, 2, 10, 21, 40])
@pytest.mark.parametrize("which", [0, 1, 6])
def test_a_wrong_bit_in_the_number_of_a_message_takes_no_other_out_of_its_queue(
    tmp_path: Path, bit: int, which: int
) -> None:
    async def work(store: MessageStore) -> list[int]:
        found = await put(store, "orders", 0, *(b"%d" % number for number in range(8)))
        crashed_copy(store, tmp_path / "crashed")
        return found

    start = with_store(tmp_path / "store", work)[which]
    at = start + AT["queue_offset"]
    path = log_file_of(tmp_path / "crashed", at)
    data = bytearray(path.read_bytes())
    number = int.from_bytes(data[at : at + 8], "big") ^ 1 << bit
    data[at : at + 8] = number.to_bytes(8, "big")
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert shown(store) == [b"%d" % one for one in range(8) if one != which]
        if number > which:
            (damage,) = store.report.damages
            assert damage.offset == start and f"queue offset, {number}," in damage.why

    with_store(tmp_path / "crashed", check)


@pytest.mark.parametrize(("which", "bit"), [(0, 21), (1, 21), (7, 21), (0, 0), (1, 3)])
def test_a_wrong_bit_in_a_queue_whose_first_messages_are_gone_takes_one_message_at_most(
    tmp_path: Path, which: int, bit: int
) -> None:
    """Also where the number is so far below the next one that no queue has room for what would be
    missing, and is the one that a queue begins with."""
    first = (1 << 21) - 1

    async def work(store: MessageStore) -> list[int]:
        queue = store.queue("orders", 0)
        assert queue.restore(first, b"x" * layout.ENTRY_SIZE)
        queue.minimum = queue.appended
        found = await put(store, "orders", 0, *(b"%d" % number for number in range(8)))
        crashed_copy(store, tmp_path / "crashed")
        return found

    start = with_store(tmp_path / "store", work)[which]
    shutil.rmtree(tmp_path / "crashed" / "consumequeue")
    at = start + AT["queue_offset"]
    path = log_file_of(tmp_path / "crashed", at)
    data = bytearray(path.read_bytes())
    number = int.from_bytes(data[at : at + 8], "big")
    assert number == first + 1 + which
    data[at : at + 8] = (number ^ 1 << bit).to_bytes(8, "big")
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert shown(store) == [b"%d" % one for one in range(8) if one != which]
        assert store.queue("orders", 0).readable == first + 9 - (which == 7)

    with_store(tmp_path / "crashed", check)


def test_queues_are_made_again_though_an_old_message_that_no_start_verifies_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of a file of the log. It is told, and shown as before."""
    monkeypatch.setattr(recovery, "VERIFY_BACK", 0)

    async def work(store: MessageStore) -> list[int]:
        found = await put(store, "orders", 0, *(b"%d" % number * 90 for number in range(100)))
        await store.checkpointer.checkpoint()
        await put(store, "orders", 0, b"new")
        crashed_copy(store, tmp_path / "crashed")
        return found

    found = with_store(tmp_path / "store", work)
    damaged = min(one for one in found if one >= LOG_FILE)
    assert damaged == LOG_FILE
    shutil.rmtree(tmp_path / "crashed" / "consumequeue")
    path = log_file_of(tmp_path / "crashed", damaged)
    data = bytearray(path.read_bytes())
    data[data.index(b"%d" % found.index(damaged) * 90)] ^= 1
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert len(bodies(store, "orders", 0)) == 101
        (damage,) = store.report.damages
        assert (damage.offset, damage.why) == (damaged, "the checksum of its body is wrong")

    with_store(tmp_path / "crashed", check)


@pytest.mark.parametrize(
    "what", ["size", "magic", "physical_offset", "topic", "body_length", "zeros"]
)
def test_queues_are_made_again_though_an_old_message_is_no_record_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is told, and all the others are in their places."""
    monkeypatch.setattr(recovery, "VERIFY_BACK", 0)

    async def work(store: MessageStore) -> list[int]:
        found = await put(store, "orders", 0, *(b"%d" % number * 90 for number in range(100)))
        await store.checkpointer.checkpoint()
        await put(store, "orders", 0, b"new")
        crashed_copy(store, tmp_path / "crashed")
        return found

    found = with_store(tmp_path / "store", work)
    damaged = 10
    at = found[damaged] % LOG_FILE
    shutil.rmtree(tmp_path / "crashed" / "consumequeue")
    path = log_file_of(tmp_path / "crashed", found[damaged])
    data = bytearray(path.read_bytes())
    if what == "zeros":
        data[at : at + 40] = bytes(40)
    elif what == "topic":
        data[data.index(b"orders", at)] = 0xFF
    else:
        data[at + AT[what]] ^= 0x10
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert [damage.offset for damage in store.report.damages] == [found[damaged]]
        queue = store.queue("orders", 0)
        assert queue.readable == 101
        there = [entry[0] for index in range(101) if (entry := queue.entry(index)) is not None]
        assert [one for n, one in enumerate(there) if n not in (damaged, 100)] == [
            one for n, one in enumerate(found) if n != damaged
        ]

    with_store(tmp_path / "crashed", check)


def test_a_torn_checkpoint_only_costs_time(tmp_path: Path) -> None:
    crashed, _ = damaged_copy(tmp_path)
    (crashed / layout.CHECKPOINT_FILE).write_bytes(b"\xff" * 100)

    async def check(store: MessageStore) -> None:
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)


@pytest.mark.parametrize("bit", [0, 33, 40, 61])
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("boot", [b"", b"another boot"])
def test_a_wrong_bit_in_a_time_of_the_checkpoint_hides_no_message(
    tmp_path: Path, number: int, bit: int, boot: bytes
) -> None:
    """Also where it says that much more is on the disk: the lower of the others counts."""
    crashed, _ = damaged_copy(tmp_path)
    path = crashed / layout.CHECKPOINT_FILE
    times = int.from_bytes(path.read_bytes()[:24], "big") ^ 1 << (64 * number + bit)
    path.write_bytes(times.to_bytes(24, "big") + path.read_bytes()[24:])
    if boot:
        (crashed / layout.ABORT_FILE).write_bytes(boot)

    async def check(store: MessageStore) -> None:
        assert store.report.start == 0
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)


def test_with_sync_flush_nothing_is_readable_before_the_fsync(tmp_path: Path) -> None:
    async def check(store: MessageStore) -> None:
        appended = asyncio.ensure_future(put(store, "orders", 0, b"one"))
        await asyncio.sleep(0)
        store.appender.commit()
        assert store.max_physical_offset > store.flushed_offset
        assert store.max_offset("orders", 0) == 0
        (physical,) = await appended
        assert store.flushed_offset == store.max_physical_offset
        assert store.max_offset("orders", 0) == 1
        assert store.record_at(physical) is not None

    with_store(tmp_path, check, flush=FlushDiskType.SYNC_FLUSH)


def test_a_store_in_use_cannot_be_locked_by_another_process(tmp_path: Path) -> None:
    script = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "except OSError:\n    sys.exit(3)\n"
    )

    async def check(store: MessageStore) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, str(tmp_path / "lock")
        )
        assert await process.wait() == 3

    with_store(tmp_path, check)


@pytest.mark.parametrize("part", ["topic", "properties"])
def test_a_message_that_a_power_cut_has_torn_behind_its_body_is_cut_off(
    tmp_path: Path, part: str
) -> None:
    """The checksum is of the body alone; a sector behind it was not written, and is zeros."""
    topic = "t" * 120

    async def work(store: MessageStore) -> tuple[int, int]:
        await put(store, topic, 0, b"whole")
        start = store.log.position
        # The topic, or the properties, lie on both sides of the end of a sector.
        behind = start + SMALLEST_RECORD - 2
        if part == "properties":
            behind += len(topic) + 2
        body = b"b" * ((-behind - 60) % 512)
        await put(store, topic, 0, body, properties=b"KEYS\x01" + b"k" * 100 + b"\x02")
        end = store.log.position
        crashed_copy(store, tmp_path / "b")
        return start, end

    start, end = with_store(tmp_path / "a", work)
    (tmp_path / "b" / "abort").write_text("of another boot\n")
    path = tmp_path / "b" / "commitlog" / "00000000000000000000"
    content = bytearray(path.read_bytes())
    torn = content.index(b"k" * 100 if part == "properties" else topic.encode(), start) + 99
    torn -= torn % 512
    assert start < torn < end
    content[torn : torn + 512] = bytes(512)
    path.write_bytes(content)

    async def check(store: MessageStore) -> None:
        assert store.log.position == start
        assert bodies(store, topic, 0) == [b"whole"]

    with_store(tmp_path / "b", check)


@pytest.mark.parametrize("part", ["topic", "properties"])
def test_what_a_kill_has_left_of_a_write_is_cut_off(tmp_path: Path, part: str) -> None:
    """A full disk takes whole blocks of a write, and the broker is killed before it clears them."""
    topic = "t" * 120
    properties = b"" if part == "topic" else b"KEYS\x01" + b"k" * 100 + b"\x02CLUSTER\x01c"

    async def work(store: MessageStore) -> tuple[int, int]:
        await put(store, topic, 0, b"whole", properties=properties)
        start = store.log.position
        behind = SMALLEST_RECORD - 2 + (0 if part == "topic" else len(topic) + 2)
        body = b"b" * (4096 - start - behind - 60)  # a page ends amid the part
        await put(store, topic, 0, body, properties=properties)
        crashed_copy(store, tmp_path / "b")
        return start, store.log.position

    async def check(store: MessageStore) -> None:
        assert store.report.crashed and not store.report.machine_crashed
        assert store.log.position == start
        assert bodies(store, topic, 0) == [b"whole"]

    start, end = with_store(tmp_path / "a", work, log_file=16384)
    assert start < 4096 < end
    path = tmp_path / "b" / "commitlog" / "00000000000000000000"
    content = bytearray(path.read_bytes())
    content[4096:end] = bytes(end - 4096)
    path.write_bytes(content)
    with_store(tmp_path / "b", check, log_file=16384)


@pytest.mark.parametrize("in_batch", [False, True])
def test_the_longest_properties_are_refused_where_they_would_end_the_record_in_zeros(
    tmp_path: Path, in_batch: bool
) -> None:
    text = b"a\x01" + b"b" * (MAX_LENGTH - 3) + b"\0"
    field = MAX_LENGTH.to_bytes(2, "big") + text

    async def work(store: MessageStore) -> None:
        with pytest.raises(StoreRefused, match="32767 bytes that end in a zero"):
            if in_batch:
                store.appender.append_batch(
                    store.queue("orders", 0),
                    [(b"body", field, 0, 0, ())],
                    sys_flag=0,
                    born_timestamp=0,
                    born_host=HOST,
                    reconsume_times=0,
                )
            else:
                await put(store, "orders", 0, b"body", properties=text)
        await put(store, "orders", 0, b"body", properties=text[:-2] + b"\0")
        assert store.max_offset("orders", 0) == 1

    with_store(tmp_path, work, log_file=1 << 20)


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("behind", [0, 1, 20, 39, 40])
def test_a_last_message_that_ends_in_zeros_outlives_a_crash(
    tmp_path: Path, behind: int, loses_power: bool, in_batch: bool
) -> None:
    """So many of them lie in a sector that has nothing else: as if that had not been written."""
    text = b"a\x01b" + bytes(40)

    async def work(store: MessageStore) -> None:
        size = SMALLEST_RECORD - 2 + len("orders") + 2 + len(text)
        body = b"b" * (1024 - size + behind)
        if in_batch:
            field = len(text).to_bytes(2, "big") + text
            store.appender.append_batch(
                store.queue("orders", 0),
                [(body, field, 0, 0, ())],
                sys_flag=0,
                born_timestamp=0,
                born_host=HOST,
                reconsume_times=0,
            )
            store.appender.commit()
        else:
            await put(store, "orders", 0, body, properties=text)
        crashed_copy(store, tmp_path / "b")

    async def check(store: MessageStore) -> None:
        assert store.report.machine_crashed is loses_power
        assert store.max_offset("orders", 0) == 1 and not store.report.damages
        record = store.record_at(0)
        assert record is not None
        assert decode_record(record).properties == {"a": "b" + 40 * "\0"}

    with_store(tmp_path / "a", work)
    if loses_power:
        (tmp_path / "b" / "abort").write_text("of another boot\n")
    with_store(tmp_path / "b", check)


@pytest.mark.parametrize("loses_power", [False, True])
def test_messages_with_zeros_in_their_properties_are_no_torn_ones(
    tmp_path: Path, loses_power: bool
) -> None:
    """Nor is what follows them cut off the log. Each has some on both sides of a sector's end."""
    texts = [b"a\x01" + bytes(n) + b"\x02b\x01c" for n in (1, 2, 400, 511)]
    texts.append(bytes(300) + b"\x01d\x02b\x01c")  # in a name

    async def work(store: MessageStore) -> list[bytes]:
        for text in texts:
            behind_body = SMALLEST_RECORD - 2 + len("orders") + 2
            zeros = text.index(0)
            body = b"b" * ((-store.log.position - behind_body - zeros - 1) % 512)
            await put(store, "orders", 0, body, properties=text)
        await put(store, "orders", 0, b"last")
        crashed_copy(store, tmp_path / "b")
        return bodies(store, "orders", 0)

    async def check(store: MessageStore) -> None:
        assert store.report.machine_crashed is loses_power
        assert bodies(store, "orders", 0) == sent
        assert not store.report.damages

    sent = with_store(tmp_path / "a", work, flush=FlushDiskType.SYNC_FLUSH, log_file=16384)
    if loses_power:
        (tmp_path / "b" / "abort").write_text("of another boot\n")
    with_store(tmp_path / "b", check, log_file=16384)


@pytest.mark.parametrize("is_vouched_for", [False, True])
def test_what_looks_torn_of_another_broker_is_taken_where_no_power_cut_can_have_torn_it(
    tmp_path: Path, is_vouched_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java takes all properties. Behind a kill, or before the last checkpoint, they are as sent."""
    monkeypatch.setattr(append, "_UNWRITTEN", b"none has this")

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"zeros", properties=b"a\x01" + bytes(1023) + b"\x02b\x01c")
        await put(store, "orders", 0, b"last")
        if is_vouched_for:
            await store.checkpointer.checkpoint()
        crashed_copy(store, tmp_path / "b")

    async def check(store: MessageStore) -> None:
        assert store.report.machine_crashed is is_vouched_for
        assert bodies(store, "orders", 0) == [b"zeros", b"last"]

    with_store(tmp_path / "a", work)
    if is_vouched_for:
        (tmp_path / "b" / "abort").write_text("of another boot\n")
    with_store(tmp_path / "b", check)


def test_a_start_takes_a_log_that_an_older_broker_was_killed_amid_cutting(tmp_path: Path) -> None:
    """It cut the file short and gave it its length again: between the two it had another size."""

    async def work(store: MessageStore) -> None:
        await fill(store, 4)
        crashed_copy(store, tmp_path / "b")

    with_store(tmp_path / "a", work)
    path = tmp_path / "b" / "commitlog" / "00000000000000000000"
    os.truncate(path, len(path.read_bytes().rstrip(b"\0")))

    async def check(store: MessageStore) -> None:
        assert path.stat().st_size == 4096
        assert len(bodies(store, "orders", 0)) == len(bodies(store, "orders", 1)) == 2
        await fill(store, 6, start=4)
        assert len(bodies(store, "orders", 0)) == len(bodies(store, "orders", 1)) == 3

    with_store(tmp_path / "b", check)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_start_behind_a_kill_takes_no_log_that_was_made_with_smaller_files(
    tmp_path: Path, is_full: bool
) -> None:
    """It would make the file longer, and the size that is right would be refused from then on."""

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        if is_full:  # nothing but the head of a blank has room behind the second
            left = store.log.file_size - store.log.position - 8
            await put(store, "orders", 0, b"b" * (left - SMALLEST_RECORD - len("orders")))
            with pytest.raises(StoreRefused), pytest.MonkeyPatch.context() as patch:
                patch.setattr(store.log, "add_file", _no_room)
                await put(store, "orders", 0, b"third")
        crashed_copy(store, tmp_path / "b")

    async def check(store: MessageStore) -> None:
        assert len(bodies(store, "orders", 0)) == 1 + is_full

    with_store(tmp_path / "a", work)
    with pytest.raises(StoreLoadError, match="has 4096 bytes, mappedFileSizeCommitLog is 8192"):
        with_store(tmp_path / "b", check, log_file=8192)
    with_store(tmp_path / "b", check)


def _no_room() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_file_of_another_size_is_refused_with_its_name(tmp_path: Path) -> None:
    with_store(tmp_path, fill)

    async def nothing(store: MessageStore) -> None:
        raise AssertionError

    with pytest.raises(StoreLoadError, match="mappedFileSizeCommitLog"):
        with_store(tmp_path, nothing, log_file=8192)


def test_a_store_in_a_folder_that_may_not_be_listed_is_opened() -> None:
    with tempfile.TemporaryDirectory() as name:
        above, root = Path(name), Path(name) / "store"
        root.mkdir()
        is_root = os.geteuid() == 0  # who may list everything
        if is_root:
            os.chown(root, 65534, 65534)
        above.chmod(0o311)
        try:
            if is_root:
                os.seteuid(65534)
            with pytest.raises(PermissionError):
                os.listdir(above)
            with_store(root, fill)
            with_store(root, fill)
        finally:
            if is_root:
                os.seteuid(0)
            above.chmod(0o700)
