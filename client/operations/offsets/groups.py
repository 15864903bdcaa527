"""The offsets of groups in a cluster: all of them, and their conversion to times and back."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.errors import NotFound
from mq.client.operations.offsets.by_time import first_at
from mq.client.operations.offsets.records import GroupQueue, OffsetRecord, Selection
from mq.client.pull.pull_consumer import PullConsumer, PullResult
from mq.protocol.bodies import MessageQueue
from mq.protocol.names import (
    BUILT_IN_GROUPS,
    NOT_SENDABLE_TOPICS,
    is_system_group,
    is_system_topic,
)

if TYPE_CHECKING:
    from mq.client.admin import Admin

IN_FLIGHT = 64  # concurrent requests: a broker has other work to do

# An empty queue has no message with a time. Later messages are stored after now, unless the clocks
# of this machine and the broker differ by more than this.
_CLOCK_MARGIN = 60_000  # ms


class FetchedOffsets(NamedTuple):
    """Offsets, and a line for each broker or queue whose offsets could not be fetched."""

    records: list[OffsetRecord]
    failures: list[str]


async def gather(
    admin: "Admin",
    selection: Selection,
    cluster_name: str | None,
    expected: Mapping[str, str] = {},
) -> FetchedOffsets:
    """Return the offsets of all groups at all brokers, or in one cluster, except those of the
    system.

    `expected` are brokers that must exist, with the source of that information: a name server
    removes an unavailable broker. Raises NotFound for an unknown cluster, and the last broker's
    error if none answers.
    """
    info = await cluster.clusters(admin.session)
    names = cluster.broker_names(info, cluster_name) if cluster_name else info.broker_addr_table
    tables: list[tuple[str, dict[str, dict[int, int]]]] = []
    failures = [
        f"broker {name}: not registered now{how}"
        for name, how in expected.items()
        if name not in info.broker_addr_table and name not in names
    ]
    last: MQError | NotFound | None = None

    async def ask(name: str) -> None:
        nonlocal last
        try:
            if name not in info.broker_addr_table:
                raise NotFound(f"broker {name} is not registered now")
            address = cluster.any_address(info.broker_addr_table[name])
            tables.append((name, await admin.all_consumer_offsets(address)))
        except (MQError, NotFound) as error:
            failures.append(f"broker {name}: {error}")
            last = error

    await admin.session.all([ask(name) for name in sorted(names)])
    if last is not None and not tables:
        raise last
    records = [record for name, table in tables for record in _records(name, table, selection)]
    return FetchedOffsets(records, sorted(failures))


def _records(
    broker: str, table: dict[str, dict[int, int]], selection: Selection
) -> Iterable[OffsetRecord]:
    for name, queues in table.items():
        topic, _, group = name.partition("@")
        if not group or _is_systems(topic, group):
            continue
        for queue_id, offset in queues.items():
            key = GroupQueue(group, topic, broker, queue_id)
            if offset >= 0 and selection.takes(key):
                yield OffsetRecord(key, offset)


def _is_systems(topic: str, group: str) -> bool:
    """Whether an offset belongs to the broker itself: changing it breaks delays and
    transactions.
    """
    return (
        is_system_group(group)
        or group in BUILT_IN_GROUPS
        or is_system_topic(topic)
        or topic in NOT_SENDABLE_TOPICS
    )


class Times:
    """Converts offsets to the store times of their messages and back; each point is queried
    once.
    """

    def __init__(self, admin: "Admin", now: int) -> None:
        """`now` is in ms since 1970."""
        self._admin = admin
        self._consumer = PullConsumer(admin.session)
        self._now = now
        self._limit = asyncio.Semaphore(IN_FLIGHT)

    async def stamp(self, records: Iterable[OffsetRecord]) -> FetchedOffsets:
        """Add the store times of the messages at the offsets of the records."""
        wanted = list(records)
        points = {(_queue(record.key), record.offset) for record in wanted}
        times: dict[tuple[MessageQueue, int], int] = {}
        failures: list[str] = []

        async def ask(queue: MessageQueue, offset: int) -> None:
            try:
                async with self._limit:
                    times[queue, offset] = await self._time_of(queue, offset)
            except MQError as error:
                failures.append(f"{queue.topic}:{queue.broker_name}:{queue.queue_id}: {error}")

        await asyncio.gather(*(ask(*point) for point in points))
        stamped = [
            OffsetRecord(record.key, record.offset, times.get((_queue(record.key), record.offset)))
            for record in wanted
        ]
        return FetchedOffsets(stamped, sorted(failures))

    async def _time_of(self, queue: MessageQueue, offset: int) -> int:
        """Return the store time of the message at `offset`, or of the next one.

        If there is none yet: one millisecond after the message before it.
        """
        result = await self._pull(queue, offset)
        if result.messages:
            return result.messages[0].store_timestamp
        if result.max_offset > result.min_offset:
            last = await self._pull(queue, result.max_offset - 1)
            if last.messages:
                return last.messages[-1].store_timestamp + 1
        return self._now - _CLOCK_MARGIN

    async def offset_at(self, queue: MessageQueue, timestamp: int) -> int:
        """Return the offset of the first message stored at `timestamp` (ms) or later, or the
        end.
        """
        async with self._limit:
            session = self._admin.session
            address = await session.master_address(queue.topic, queue.broker_name)
            return await first_at(self._admin, self._consumer, address, queue, timestamp)

    async def _pull(self, queue: MessageQueue, offset: int, max_count: int = 1) -> PullResult:
        """Pull at `offset` or, if it is expired or not there yet, at the nearest offset."""
        while True:
            result = await self._consumer.pull(queue, offset, max_count=max_count, decompress=False)
            if result.messages or result.next_offset == offset:
                return result
            offset = result.next_offset


def _queue(key: GroupQueue) -> MessageQueue:
    return MessageQueue(key.topic, key.broker_name, key.queue_id)
