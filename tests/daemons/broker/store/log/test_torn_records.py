"""The torn end of a write is truncated after a kill or a power failure; records that only look torn
are kept.
"""

import shutil
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log import append
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from mq.protocol.message import decode_record
from mq.protocol.properties import MAX_LENGTH
from mq.protocol.record import SMALLEST_RECORD
from tests.daemons.broker.store.damaged import overwrite
from tests.daemons.broker.store.stores import (
    HOST,
    bodies,
    crashed_copy,
    put,
    with_store,
)
from tests.daemons.broker.store.stores import reader as reader  # a fixture

pytestmark = pytest.mark.usefixtures("reader")


@pytest.mark.parametrize("part", ["topic", "properties"])
def test_a_message_torn_after_its_body_is_truncated(tmp_path: Path, part: str) -> None:
    """The checksum covers the body alone; a sector after it was not written, and is zeros."""
    topic = "t" * 120

    async def work(store: MessageStore) -> tuple[int, int]:
        await put(store, topic, 0, b"whole")
        start = store.log.position
        # Topic or properties are on both sides of a sector boundary.
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


@pytest.mark.parametrize("what", ["snapshot", "mount"])
def test_a_torn_message_is_truncated_if_the_page_cache_changed_within_one_boot(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of a running store was restored, or its volume was detached and mounted again."""
    root = tmp_path / "b"

    async def work(store: MessageStore) -> tuple[int, int]:
        await put(store, "orders", 0, b"whole")
        start = store.log.position
        await put(store, "orders", 0, b"torn", properties=b"KEYS\x01" + b"k" * 1500 + b"\x02")
        end = store.log.position
        await put(store, "orders", 0, b"last")
        crashed_copy(store, root)
        return start, end

    start, end = with_store(tmp_path / "a", work)
    if what == "snapshot":
        root = tmp_path / "c"
        shutil.copytree(tmp_path / "b", root)
    else:
        monkeypatch.setattr(files, "mount_id", lambda _: 7)
    sector = start + 512 - start % 512 + 512
    assert sector + 512 < end
    overwrite(root / "commitlog" / layout.file_name(0), sector, bytes(512))

    async def check(store: MessageStore) -> None:
        assert store.report.machine_crashed
        assert bodies(store, "orders", 0) == [b"whole"]

    with_store(root, check)


@pytest.mark.parametrize("part", ["topic", "properties"])
def test_the_torn_end_of_a_killed_write_is_truncated(tmp_path: Path, part: str) -> None:
    """A full disk accepts whole blocks of a write, and the broker is killed before it clears
    them."""
    topic = "t" * 120
    properties = b"" if part == "topic" else b"KEYS\x01" + b"k" * 100 + b"\x02CLUSTER\x01c"

    async def work(store: MessageStore) -> tuple[int, int]:
        await put(store, topic, 0, b"whole", properties=properties)
        start = store.log.position
        behind = SMALLEST_RECORD - 2 + (0 if part == "topic" else len(topic) + 2)
        body = b"b" * (4096 - start - behind - 60)  # a page ends inside the part
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
def test_a_last_message_that_ends_in_zeros_survives_a_crash(
    tmp_path: Path, behind: int, loses_power: bool, in_batch: bool
) -> None:
    """Many zeros fill a sector that has nothing else, as if it had not been written."""
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
def test_messages_with_zeros_in_their_properties_do_not_count_as_torn(
    tmp_path: Path, loses_power: bool
) -> None:
    """Nor is anything after them truncated. Each has zeros on both sides of a sector boundary."""
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
def test_a_record_of_another_broker_that_looks_torn_is_kept_without_a_power_failure(
    tmp_path: Path, is_vouched_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java accepts all properties. After a kill, or before the last checkpoint, they are valid."""
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
