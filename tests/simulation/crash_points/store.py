"""A store on the machine: its workloads, and the checks of a start after a crash."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType, MessageStoreConfig
from mq.protocol.message import decode_record
from tests.simulation import small
from tests.simulation.crash_points import model
from tests.simulation.crash_points.machine import ROOT

assert small  # imported for the constants that it makes small

HOST = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
_ALL_TIME = 1 << 62


def settings(**changes: Any) -> MessageStoreConfig:
    """Files so small that each is rolled after a few messages."""
    small: dict[str, Any] = {
        "store_path_root_dir": ROOT,
        "mapped_file_size_commit_log": 2048,
        "mapped_file_size_consume_queue": 160,
        "max_hash_slot_num": 10,
        "max_index_num": 12,
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
    }
    return MessageStoreConfig(**{**small, **changes})


@dataclass
class Ledger:
    """Events, and the store that they belong to."""

    events: list[model.Event] = field(default_factory=list)
    store: MessageStore | None = None
    flushed: int = 0
    next_number: int = 1

    def note(self, event: model.Event) -> None:
        self.events.append(event)

    def count(self) -> int:
        """The number of events so far, including those that the store reports."""
        if self.store is not None and self.store.log.flushed != self.flushed:
            self.flushed = self.store.log.flushed
            self.note(model.Flushed(self.flushed))
        return len(self.events)


class StoreRun:
    """An open store that a workload uses."""

    def __init__(self, store: MessageStore, ledger: Ledger) -> None:
        self.store = store
        self.ledger = ledger

    def append(self, topic: str, queue_id: int, size: int = 60) -> "asyncio.Future[bool]":
        """Put a message; the future returns whether it was acknowledged."""
        store, ledger = self.store, self.ledger
        number = ledger.next_number
        ledger.next_number += 1
        key = f"k{number}"
        body = b"m%d." % number + b"x" * size
        properties = b"KEYS\x01" + key.encode()
        queue = store.queue(topic, queue_id)
        before = queue.put_bytes
        physical = store.appender.append(
            queue,
            body,
            len(properties).to_bytes(2, "big") + properties,
            flag=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            born_host=HOST,
        )
        store.appender.index(topic, (key,), physical)
        place = (topic, queue_id, queue.appended - 1)
        end = physical + queue.put_bytes - before
        ledger.note(model.Appended(model.Message(number, place, physical, end, body, key)))
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(refusal: StoreRefused | None) -> None:
            if refusal is None:
                ledger.note(model.Stored(number))
            if not future.done():
                future.set_result(refusal is None)

        store.appender.call_when_stored(done)
        return future

    async def put(self, topic: str, queue_id: int, count: int = 1, size: int = 60) -> None:
        """Put messages one after the other."""
        for _ in range(count):
            await self.append(topic, queue_id, size)

    async def delete_topic(self, topic: str) -> None:
        self.ledger.note(model.Deleting(topic))
        self.store.delete_topic(topic)
        self.ledger.note(model.Deleted(topic))

    async def expire(self) -> None:
        """Let retention delete all log files but the last."""
        self.ledger.note(model.Expiring(self.store.log.files[-1].start))
        await self.store.retention.clean(manual=True)


@asynccontextmanager
async def opened(ledger: Ledger, config: MessageStoreConfig) -> AsyncIterator[StoreRun]:
    """A store from its start to its orderly stop."""
    store = MessageStore(lambda: config, HOST)
    try:
        async with store:
            ledger.store = store
            yield StoreRun(store, ledger)
    finally:
        ledger.store = None


Work = Callable[[StoreRun], Awaitable[None]]


def read(store: MessageStore) -> tuple[dict[model.Place, bytes], list[str]]:
    """The readable bodies by place, and the problems."""
    found: dict[model.Place, bytes] = {}
    wrong = []
    for queue in store.queues:
        for offset in range(queue.minimum, queue.readable):
            entry = store.entries.at(queue.topic, queue.queue_id, offset)
            record = None if entry is None else store.record_at(entry[0])
            if record is None:
                wrong.append(f"{queue!r} has nothing to read at {offset}")
                continue
            message = decode_record(record)
            if (message.topic, message.queue_id, message.queue_offset) != (
                queue.topic,
                queue.queue_id,
                offset,
            ):
                wrong.append(f"{queue!r} has another message at {offset}")
            found[queue.topic, queue.queue_id, offset] = message.body
    return found, wrong


def look_up(store: MessageStore, messages: list[model.Message]) -> dict[str, list[bytes]]:
    """Bodies by key."""
    keyed = {}
    for message in messages:
        _, _, records = query_by_key(store, message.topic, message.key, 32, 0, _ALL_TIME)
        keyed[message.key] = [decode_record(record).body for record in records]
    return keyed


async def recover(
    ledger: Ledger,
    config: MessageStoreConfig,
    expected: model.Expectation,
    problems: list[str],
    *,
    may_be_damaged: bool,
) -> None:
    """Start after a crash, check everything, put one more message, stop, and start again."""
    async with opened(ledger, config) as life:
        store = life.store
        found, wrong = read(store)
        problems += wrong
        problems += expected.problems(found, look_up(store, list(expected.messages.values())))
        if store.report.damages and not may_be_damaged:
            problems.append(f"undamaged bytes are truncated: {store.report.damages}")
        numbers = {m.number for m in expected.messages.values() if found.get(m.place) == m.body}
        ledger.note(model.Found(frozenset(numbers)))
        topic = min((place[0] for place in found), default="orders")
        if not await life.append(topic, 0):
            problems.append("it accepts no message")
        more, wrong = read(store)
        problems += wrong
        before = len(found)
        if len(more) != before + 1:
            problems.append(f"{before} messages and one more are {len(more)}")
    if files.exists(Path(ROOT) / layout.ABORT_FILE):
        problems.append("it did not stop cleanly")
        return
    async with opened(ledger, config) as life:
        report = life.store.report
        if report.crashed or report.damages or report.rebuilt_queues:
            problems.append(f"a start after an orderly stop found {report}")
        again, wrong = read(life.store)
        problems += wrong
        if again != more:
            problems.append(f"after a stop {len(again)} messages are there, not {len(more)}")
