"""The examples of docs/store-format.md are what the store reads and writes."""

import re
import zlib
from pathlib import Path

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.index.index import PUT, Index, key_hash
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.log.records import read_log
from mq.daemons.broker.store.message_store import MessageStore
from mq.protocol.message import decode_record
from mq.protocol.tags import tags_code
from tests.daemons.broker.store.stores import LOG_FILE, QUEUE_FILE, put, with_store

TEXT = (Path(__file__).parents[4] / "docs" / "store-format.md").read_text(encoding="utf-8")
RECORD_SIZE = 191
STORED = (1795242319217, 1795242319218)  # store timestamps of the two messages, ms
UNIQUE_IDS = ("7F000001315DFBD9F98C685FF56E0000", "7F000001315DFBD9F98C685FF5720001")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def hex_in(text: str) -> bytes:
    """The bytes in the table rows of a text; cells without hexadecimal digits are skipped."""
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    return bytes.fromhex("".join(re.findall(r"`((?:[0-9a-f]{2})+)`", rows)))


def record() -> bytes:
    # The value of the magic of 5.x is in the text of a row and not among its bytes.
    return hex_in(re.sub(r"; `daa320ab`", "", section("The commit log")))


def test_the_record_is_the_message_described() -> None:
    raw = record()
    assert len(raw) == RECORD_SIZE
    message = decode_record(raw, check_crc=True)
    assert (message.topic, message.body) == ("Orders", b"a chair")
    assert (message.queue_id, message.queue_offset, message.physical_offset) == (0, 0, 0)
    assert (message.born_timestamp, message.store_timestamp) == (1795242319214, STORED[0])
    assert (message.born_host, message.store_host) == (("127.0.0.1", 48562), ("127.0.0.1", 10911))
    assert message.properties == {
        "KEYS": "order-1",
        "TAGS": "paid",
        "UNIQ_KEY": UNIQUE_IDS[0],
        "CLUSTER": "DefaultCluster",
    }


def test_the_values_shown_are_those_of_the_bytes() -> None:
    rows = re.findall(
        r"^\| ((?:`[0-9a-f]+` ?)+)\| ([^|\s][^|]*?) \|", section("The commit log"), re.M
    )
    assert len(rows) >= 15
    for raw, value in rows:
        data = bytes.fromhex(re.sub(r"[` ]", "", raw))
        if value.isdigit():
            assert int.from_bytes(data, "big") == int(value)
        elif value.startswith("127."):
            address, port = data[:4], int.from_bytes(data[4:], "big")
            assert f"{'.'.join(map(str, address))}:{port}" == value
        elif "," in value:  # a property; long values are shortened
            name, text = value.split(", ")
            assert data.startswith(name.encode() + b"\x01" + text.split("…")[0].encode())
        else:
            assert data.endswith(value.encode())


def test_a_store_with_the_record_in_its_log_recovers_it(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    log = tmp_path / "commitlog" / layout.file_name(0)
    log.write_bytes(record().ljust(LOG_FILE, b"\0"))

    async def read(store: MessageStore) -> tuple[int, bytes]:
        assert [r.topic for r in read_log(store.log, 0)] == ["Orders"]
        _, _, found = query_by_key(store, "Orders", "order-1", 10, 0, STORED[1])
        assert found == [record()]
        return store.max_offset("Orders", 0), store.queue("Orders", 0).entries(0, 1)

    end, entry = with_store(tmp_path, read)
    assert end == 1
    assert entry == hex_in(section("Consume queues"))[: layout.ENTRY_SIZE]


def test_the_queue_entries_are_those_of_the_messages() -> None:
    entries = list(layout.ENTRY.iter_unpack(hex_in(section("Consume queues"))))
    assert entries == [(0, 191, tags_code("paid")), (191, 194, tags_code("open"))]


def test_the_index_header_counts_the_items_of_both_messages(tmp_path: Path) -> None:
    header, item = re.split(r"\n\nEach key of a message", section("The index"))
    slots, items = 50, 100
    index = Index(tmp_path, slots, items)
    index.load()
    for key in (UNIQUE_IDS[0], "order-1"):
        index.put(PUT.pack(key_hash("Orders", key), 0), STORED[0])
    for key in (UNIQUE_IDS[1], "order-2"):
        index.put(PUT.pack(key_hash("Orders", key), RECORD_SIZE), STORED[1])
    index.close()
    (path,) = tmp_path.iterdir()
    written = path.read_bytes()
    assert hex_in(header) == written[: layout.INDEX_HEADER.size]
    fields = layout.INDEX_ITEM.unpack(hex_in(item))
    second = layout.INDEX_HEADER.size + slots * 4 + 2 * layout.INDEX_ITEM.size
    found = layout.INDEX_ITEM.unpack_from(written, second)
    assert fields[:3] == found[:3] == (key_hash("Orders", "order-1"), 0, 0)


def test_the_checkpoint_is_one_that_counts(tmp_path: Path) -> None:
    raw = hex_in(section("checkpoint"))
    java, ours = raw[:24], raw[24:]
    assert len(ours) == layout.FINE_CHECKPOINT.size
    assert zlib.crc32(ours[:-4]) == int.from_bytes(ours[-4:], "big")
    path = tmp_path / "checkpoint"
    page = java.ljust(layout.FINE_CHECKPOINT_AT, b"\0") + ours
    path.write_bytes(page.ljust(layout.CHECKPOINT_SIZE, b"\0"))
    checkpoint = Checkpoint(path)
    checkpoint.load()
    assert checkpoint.message_timestamp == checkpoint.queue_timestamp == STORED[1]
    assert checkpoint.safe_offset == 191 + 194
    checkpoint.save()
    assert path.read_bytes() == page.ljust(layout.CHECKPOINT_SIZE, b"\0")


def test_the_safe_offset_does_not_count_once_java_has_run(tmp_path: Path) -> None:
    raw = hex_in(section("checkpoint"))
    path = tmp_path / "checkpoint"
    java = (STORED[1] + 1).to_bytes(8, "big") + raw[8:24]
    path.write_bytes((java.ljust(layout.FINE_CHECKPOINT_AT, b"\0") + raw[24:]).ljust(4096, b"\0"))
    checkpoint = Checkpoint(path)
    checkpoint.load()
    assert checkpoint.safe_offset == 0


def test_a_blank_is_as_described(tmp_path: Path) -> None:
    assert "`cbd43194`" in section("The commit log")

    async def fill(store: MessageStore) -> None:
        for _ in range(2):
            await put(store, "Orders", 0, bytes(3000))

    with_store(tmp_path, fill)
    first = (tmp_path / "commitlog" / layout.file_name(0)).read_bytes()
    end = int.from_bytes(first[:4], "big")
    left = (LOG_FILE - end).to_bytes(4, "big")
    assert first[end : end + 8] == left + bytes.fromhex("cbd43194")
    assert (tmp_path / "commitlog" / layout.file_name(LOG_FILE)).exists()


def test_the_files_named_are_those_of_a_store(tmp_path: Path) -> None:
    async def look(store: MessageStore) -> set[str]:
        await put(store, "Orders", 0, b"a chair", keys=("order-1",))
        assert re.fullmatch(r"([0-9a-f-]{36} \d+:\d+ \d+)?", (tmp_path / "abort").read_text())
        assert (tmp_path / "lock").read_bytes() == b"lock"
        return {path.name for path in tmp_path.iterdir()}

    running = with_store(tmp_path, look)
    assert {"abort", "lock", "commitlog", "consumequeue", "index"} <= running
    stopped = {path.name for path in tmp_path.iterdir()}
    assert "abort" not in stopped and "checkpoint" in stopped
    queue = tmp_path / "consumequeue" / "Orders" / "0" / layout.file_name(0)
    assert queue.stat().st_size == QUEUE_FILE
