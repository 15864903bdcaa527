"""A log that is replayed by the native path and by Python, with any content."""

import random
import shutil
from pathlib import Path

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.recovery import replay
from mq.protocol.flags import SysFlag
from mq.protocol.names import SCHEDULE_TOPIC
from mq.protocol.native import native
from tests.conftest import share
from tests.daemons.broker.store.damaged_copies import all_bodies, damaged_copy, expected
from tests.daemons.broker.store.stores import HOST, crashed_copy, put, with_store

IPV6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
TOPICS = ("orders", "bills", "%RETRY%billing", SCHEDULE_TOPIC)
PROPERTIES = (
    b"",
    b"KEYS\x01one two\x02",
    b"UNIQ_KEY\x01%d\x02TAGS\x01book\x02",
    b"UNIQ_KEY\x01%d\x02KEYS\x01a  b\x02DELAY\x013\x02",
    b"TAGS\x01\xd1\x88\x02",
    b"KEYS\x01a\x02KEYS\x01b\x02",
    b"note\x01z\0z\x02",
    b"no separator",
)
FLAGS = (
    0,
    SysFlag.TRANSACTION_PREPARED,
    SysFlag.TRANSACTION_COMMIT,
    SysFlag.TRANSACTION_ROLLBACK,
    SysFlag.BORN_HOST_V6,
)


async def store_any(store: MessageStore, chance: random.Random, count: int) -> None:
    """Messages of all kinds, topics that are deleted and created again, and checkpoints."""
    for number in range(count):
        is_odd = not chance.randrange(15)
        raw = chance.choice(PROPERTIES if is_odd else PROPERTIES[:3])
        raw = raw % number if b"%" in raw else raw
        topic = chance.choice(TOPICS if is_odd else TOPICS[:3])
        flag = chance.choice(FLAGS) if is_odd else 0
        store.appender.append(
            store.queue(topic, chance.randrange(3)),
            bytes(chance.randrange(300)),
            len(raw).to_bytes(2, "big") + raw,
            flag=0,
            sys_flag=flag,
            born_timestamp=1_700_000_000_000,
            born_host=IPV6 if flag == SysFlag.BORN_HOST_V6 else HOST,
        )
        if not chance.randrange(20):
            await put(store, topic, 0, b"stored")
        if not chance.randrange(40):
            store.delete_topic(topic)
        if not chance.randrange(60):
            await store.checkpointer.checkpoint()
    await put(store, "orders", 0, b"last")


def damage(root: Path, chance: random.Random) -> None:
    """Possibly a wrong bit in the log or in a queue file, possibly a power failure."""
    if chance.randrange(2):
        (root / layout.ABORT_FILE).write_bytes(b"another boot")
    folder = root / chance.choice(("commitlog", "consumequeue", "none"))
    found = sorted(one for one in folder.rglob("*") if one.is_file())
    if found:
        file = chance.choice(found)
        data = bytearray(file.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)


def story_of(root: Path) -> list[object]:
    """The state of a store after a start."""

    async def look(store: MessageStore) -> list[object]:
        report = store.report
        queues = sorted(
            (
                queue.topic,
                queue.queue_id,
                queue.minimum,
                queue.appended,
                queue.entries(queue.minimum, 1 << 30),
            )
            for queue in store.queues
        )
        damages = [(one.offset, one.dropped, one.why) for one in report.damages]
        ends = (report.start, report.end, report.records, report.rebuilt_queues)
        assert store.key_index is not None
        index = [bytes(one._map) for one in store.key_index.files]
        # The time of the last message in the header: of the last one with keys, or of any later
        # one.
        index = [data[:8] + data[16:] for data in index]
        return [ends, damages, queues, index]

    try:
        return with_store(root, look, queue_file=2000)
    except StoreLoadError as error:
        return [type(error), str(error).replace(str(root), "")]


def compare(folder: Path, seed: int) -> None:
    if replay._read_records is None:
        pytest.skip("the native path is not built")
    chance = random.Random(seed)
    crashed = folder / "crashed"

    async def work(store: MessageStore) -> None:
        await store_any(store, chance, chance.randrange(10, 300))
        crashed_copy(store, crashed)

    with_store(folder / "store", work, queue_file=2000)
    damage(crashed, chance)
    shutil.copytree(crashed, folder / "again")
    natively = story_of(crashed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "_read_records", None)
        by_python = story_of(folder / "again")
    assert natively == by_python


@pytest.mark.more
@pytest.mark.parametrize("seed", range(share(40)))
def test_both_paths_replay_any_log_alike(tmp_path: Path, seed: int) -> None:
    compare(tmp_path, seed)


@pytest.mark.skipif(native is None, reason="the native path is not built")
def test_a_start_reads_the_log_with_python_if_the_native_path_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    crashed, _ = damaged_copy(tmp_path)
    monkeypatch.setattr(replay, "_read_records", fail)

    async def look(store: MessageStore) -> None:
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, look)
    assert caplog.text.count("the native path failed") == 1


def fail(*_: object) -> None:
    raise RuntimeError("a panic")
