"""A TubeMQ store: messages are appended in turns, files start and end, checkpoints are written.

After a crash the store has a prefix of the sent messages, in order, each once, with a matching
index. Everything acknowledged is in it: after a kill always, after a power cut with `sync`, and
with `os` everything flushed.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

from mq.client.machine import files
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.daemons.tube.broker.store.errors import FlushMode, Refused
from mq.daemons.tube.broker.store.flusher import Flusher
from mq.daemons.tube.broker.store.layout import HEAD, HEAD_SIZE, INDEX_SIZE
from mq.daemons.tube.broker.store.reading import ReadRequest, read
from mq.daemons.tube.broker.store.topic_store import TopicStore
from mq.daemons.tube.broker.stores import Stores
from mq.daemons.tube.broker.topics import Topic, topic_of
from mq.protocol.tube.settings import BrokerDefaults, TopicSettings
from tests.simulation.crash_points import model
from tests.simulation.crash_points.failing import failing
from tests.simulation.crash_points.machine import ROOT
from tests.simulation.crash_points.store import Ledger
from tests.simulation.crash_points.workloads import ALL, Crash, Judge, Main, Workload

_DATA, _INDEX = 2400, 5 * INDEX_SIZE  # of files
_LARGE_INDEX = 40 * INDEX_SIZE  # of which a power cut may leave only the end
_SIZE = 500  # of a payload: most records are in two sectors
_LATER = "9999"  # sent after a start, which may be crashed, too
_EVERYTHING = 1 << 30


def _topic() -> Topic:
    settings = TopicSettings("orders", partitions=1, stores=1)
    return topic_of(settings, BrokerDefaults(flush_messages=4), 1 << 20)


@asynccontextmanager
async def _opened(
    mode: FlushMode, index: int = _INDEX
) -> AsyncIterator[tuple[Flusher, Stores, TopicStore]]:
    flusher = Flusher()
    stores = Stores(Path(ROOT), _DATA, index, mode, flusher)
    try:
        stores.open_root()
        await stores.open([_topic()])
        store = stores.get("orders", 0)
        assert store is not None
        yield flusher, stores, store
    finally:
        await stores.close()
        await flusher.close()


async def _send(ledger: Ledger, store: TopicStore, count: int) -> None:
    """Send messages in one turn of the event loop."""
    waiting = []
    loop = asyncio.get_running_loop()
    for _ in range(count):
        body = f"{ledger.next_number:04d}"
        ledger.next_number += 1
        answered: asyncio.Future[None] = loop.create_future()

        def done(refused: Refused | None, *_: int, to: asyncio.Future[None] = answered) -> None:
            if refused is None:
                to.set_result(None)
            else:
                to.set_exception(refused)

        payload = body.encode() * (_SIZE // 4)
        ledger.note(model.Begun(body))
        store.append(0, payload, crc32(payload) & 0x7FFFFFFF, 1, -1, 0, 1, 1, done)
        waiting.append((body, answered))
    for body, answered in waiting:
        await answered
        ledger.note(model.Due(body))


async def _checkpoint(ledger: Ledger, flusher: Flusher, store: TopicStore) -> None:
    due = sum(isinstance(event, model.Due) for event in ledger.events)
    await flusher.checkpoint(store)
    ledger.note(model.Flushed(due))


def _works(mode: FlushMode) -> Main:
    async def main(ledger: Ledger, _config: MessageStoreConfig) -> None:
        async with _opened(mode) as (flusher, _stores, store):
            await _send(ledger, store, 3)
            await _checkpoint(ledger, flusher, store)
            await _send(ledger, store, 1)
            for _turn in range(3):
                await _send(ledger, store, 4)
            await _checkpoint(ledger, flusher, store)
            await _send(ledger, store, 2)
        ledger.note(model.Flushed(sum(isinstance(e, model.Due) for e in ledger.events)))
        async with _opened(mode) as (flusher, _stores, store):
            await _send(ledger, store, 3)

    return main


async def _damaged(ledger: Ledger, _config: MessageStoreConfig) -> None:
    """Most of the index before the checkpoint is lost, and a start rebuilds it."""
    async with _opened(FlushMode.os, _LARGE_INDEX) as (_flusher, _stores, store):
        for _turn in range(4):
            await _send(ledger, store, 5)
    ledger.note(model.Flushed(sum(isinstance(e, model.Due) for e in ledger.events)))
    first, *_ = files.children(Path(ROOT) / "orders-0" / "index")
    with files.opened(first, os.O_RDWR) as descriptor:
        files.ftruncate(descriptor, INDEX_SIZE)
        files.fsync(descriptor)
    async with _opened(FlushMode.os, _LARGE_INDEX) as (_flusher, _stores, store):
        await _send(ledger, store, 1)


async def _failed_fsync(ledger: Ledger, _config: MessageStoreConfig) -> None:
    """An fsync fails, and the broker is restarted: the kernel still shows the dropped data."""
    async with _opened(FlushMode.sync) as (_flusher, _stores, store):
        await _send(ledger, store, 3)
    for what in (".tube", ".index"):
        async with _opened(FlushMode.sync) as (flusher, _stores, store):
            await _send(ledger, store, 2)
            with failing(("fdatasync",), what, 1), contextlib.suppress(Refused):
                await _send(ledger, store, 2)
                await flusher.checkpoint(store)
    async with _opened(FlushMode.sync) as (_flusher, _stores, store):
        # Readers have seen it, so it must stay.
        for body in _bodies(store):
            ledger.note(model.Due(body))
        await _send(ledger, store, 2)


def _judge(mode: FlushMode, index: int = _INDEX) -> Judge:
    def judge(
        ledger: Ledger, problems: list[str], crash: Crash
    ) -> tuple[object, Callable[[], Awaitable[None]]]:
        begun = [event.body for event in ledger.events if isinstance(event, model.Begun)]
        due = len({event.body for event in ledger.events if isinstance(event, model.Due)})
        flushed = [event.upto for event in ledger.events if isinstance(event, model.Flushed)]
        survives = mode is FlushMode.sync or not crash.has_lost_power
        least = due if survives else max(flushed, default=0)

        async def look() -> None:
            for turn in range(2):  # the second start reads what the first one has left
                async with _opened(mode, index) as (_flusher, _stores, store):
                    found = _bodies(store)
                    count = len(found) - found.count(_LATER)
                    if found[:count] != begun[:count] or len(begun) < count:
                        problems.append(f"{found} is not a prefix of {begun}")
                    if count < least:
                        problems.append(f"{count} messages are there, of {least} promised")
                    if store.max_index - store.min_index != len(found) * INDEX_SIZE:
                        problems.append(f"the index has {store.max_index} bytes")
                    if turn == 0:
                        await _send(Ledger(next_number=int(_LATER)), store, 1)
                    if turn == 0 and _bodies(store) != [*found, _LATER]:
                        problems.append("messages sent after a start are not there")

        return (tuple(begun), least), look

    return judge


def _bodies(store: TopicStore) -> list[str]:
    """The readable bodies, in order."""
    bodies = []
    offset = store.min_index
    while offset < store.max_index:
        found = read(store, ReadRequest(0, offset, None, _EVERYTHING, _EVERYTHING), wait=True)
        for piece in found.pieces:
            at = 0
            while at < len(piece):
                size = HEAD.unpack_from(piece, at)[0] + 4
                payload = piece[at + HEAD_SIZE : at + size]
                body = payload[:4].decode(errors="replace")
                bodies.append(body if payload == payload[:4] * (_SIZE // 4) else "damaged")
                at += size
        if not found.scanned:
            break
        offset += found.scanned
    return bodies


for _mode in (FlushMode.sync, FlushMode.os):
    _name = f"tube-{_mode}"
    ALL[_name] = Workload(_name, _works(_mode), judge=_judge(_mode))
ALL["tube-damaged"] = Workload("tube-damaged", _damaged, judge=_judge(FlushMode.os, _LARGE_INDEX))
ALL["tube-failed-fsync"] = Workload(
    "tube-failed-fsync", _failed_fsync, judge=_judge(FlushMode.sync)
)
