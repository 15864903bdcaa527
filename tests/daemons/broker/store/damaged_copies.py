"""Partly damaged copies of a store."""

from pathlib import Path

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.message_store import MessageStore
from tests.daemons.broker.store.stores import (
    bodies,
    crashed_copy,
    put,
    with_store,
)


async def fill(store: MessageStore, count: int = 60, start: int = 0) -> None:
    """Messages m0… in two queues of one topic, each with a key, over several log files."""
    for number in range(start, count):
        await put(
            store,
            "orders",
            number % 2,
            b"m%d" % number + b"." * 100,
            properties=b"KEYS\x01k%d" % number,
            keys=(f"k{number}",),
        )


def expected(count: int, queue_id: int) -> list[bytes]:
    return [body(number) for number in range(count) if number % 2 == queue_id]


def log_file_of(root: Path, offset: int) -> Path:
    return root / "commitlog" / layout.file_name(offset - offset % 4096)


def damaged_copy(tmp_path: Path, count: int = 60) -> tuple[Path, list[int]]:
    """A killed store with `count` messages, and the starts of its records.

    A checkpoint was taken after two thirds of them.
    """
    target = tmp_path / "crashed"

    async def work(store: MessageStore) -> list[int]:
        await fill(store, count * 2 // 3)
        await store.checkpointer.checkpoint()
        await fill(store, count, start=count * 2 // 3)
        crashed_copy(store, target)
        starts = []
        for queue_id in (0, 1):
            for offset in range(store.max_offset("orders", queue_id)):
                entry = store.entries.at("orders", queue_id, offset)
                assert entry is not None
                starts.append(entry[0])
        return sorted(starts)

    return target, with_store(tmp_path / "store", work)


async def all_bodies(store: MessageStore) -> list[list[bytes]]:
    return [bodies(store, "orders", queue_id) for queue_id in (0, 1)]


def body(number: int) -> bytes:
    return b"m%d" % number + b"." * 100
