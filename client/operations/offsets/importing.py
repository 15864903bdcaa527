"""Sets the offsets of groups from a file: the plan, and the result of each queue."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import ConsumerNotOnline, MQError, RouteNotFound
from mq.client.operations.offsets.groups import IN_FLIGHT, Times
from mq.client.operations.offsets.records import GroupQueue, OffsetRecord
from mq.client.routing.routes import broker_address, read_queues
from mq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from mq.client.admin import Admin


@dataclass
class ImportedOffset:
    """The result for a group in a queue.

    `before` is the former offset, None if there was none; `offset` is the new one, None if it could
    not be determined. `result` is a word: set, same, left (a queue that is not in the file),
    running, missing, failed. `reason` explains a problem.
    """

    key: GroupQueue
    before: int | None = None
    offset: int | None = None
    result: str = "failed"
    reason: str = ""

    @property
    def is_done(self) -> bool:
        return self.result in ("set", "same") or (self.result == "left" and not self.reason)


class Import:
    """Applies records to a cluster. `brokers` maps broker names in the file to names in the
    cluster.
    """

    def __init__(
        self,
        admin: "Admin",
        now: int,
        brokers: Mapping[str, str],
        *,
        by_time: bool,
        earliest: bool,
        everywhere: bool,
        force: bool,
    ) -> None:
        """By time, `earliest` gives queues that are not in the file the earliest time of the group
        in the topic; `everywhere` gives it to all queues.
        """
        self._admin = admin
        self._times = Times(admin, now)
        self._brokers = brokers
        self._by_time = by_time
        self._earliest = earliest or everywhere
        self._everywhere = everywhere
        self._force = force
        self._limit = asyncio.Semaphore(IN_FLIGHT)
        self._turns: dict[tuple[str, str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._queues: dict[str, set[tuple[str, int]]] = {}
        self._addresses: dict[tuple[str, str], str] = {}
        self._missing: dict[str, str] = {}
        self._running: dict[tuple[str, str], bool | MQError] = {}
        self._before: dict[str, dict[str, dict[int, int]] | MQError] = {}
        self._ends: dict[MessageQueue, int | MQError] = {}

    async def run(self, records: Iterable[OffsetRecord]) -> list[ImportedOffset]:
        """Apply the records; returns a result for each queue that gets an offset, or should have
        got one.
        """
        moved = [self._moved(record) for record in records]
        await self._learn(moved)
        plan, left = self._by_topic(moved) if self._by_time else (moved, [])
        outcomes = await asyncio.gather(
            *(self._one(record) for record in plan), *(self._leave(key) for key in left)
        )
        return sorted(outcomes, key=lambda outcome: outcome.key)

    @property
    def without(self) -> set[str]:
        """The addresses of brokers that know no member of a group in the file."""
        return {address for (address, _), running in self._running.items() if running is False}

    def _moved(self, record: OffsetRecord) -> OffsetRecord:
        broker = self._brokers.get(record.key.broker_name, record.key.broker_name)
        key = record.key._replace(broker_name=broker)
        return OffsetRecord(key, record.offset, record.timestamp)

    async def _learn(self, records: Iterable[OffsetRecord]) -> None:
        """Query the queues of the topics, and at their brokers the offsets and members of
        groups.
        """
        groups = defaultdict(set)
        for record in records:
            groups[record.key.topic].add(record.key.group)
        await asyncio.gather(*(self._learn_route(topic) for topic in groups))
        pairs = {
            (address, group)
            for (topic, _), address in self._addresses.items()
            for group in groups[topic]
        }
        await asyncio.gather(
            *(self._learn_offsets(address) for address in set(self._addresses.values())),
            *(self._learn_running(*pair) for pair in pairs),
        )

    async def _learn_route(self, topic: str) -> None:
        self._queues[topic] = set()
        try:
            route = await self._admin.session.route(topic)
        except RouteNotFound as error:
            self._missing[topic] = str(error)
            return
        for queue in read_queues(topic, route):
            address = broker_address(route, queue.broker_name)
            if address is not None:
                self._addresses[topic, queue.broker_name] = address
            self._queues[topic].add((queue.broker_name, queue.queue_id))

    async def _learn_offsets(self, address: str) -> None:
        try:
            self._before[address] = await self._admin.all_consumer_offsets(address)
        except MQError as error:
            self._before[address] = error

    async def _learn_running(self, address: str, group: str) -> None:
        try:
            async with self._limit:
                await self._admin.consumer_connection(address, group)
            self._running[address, group] = True
        except ConsumerNotOnline:
            self._running[address, group] = False
        except MQError as error:
            self._running[address, group] = error

    def _by_topic(self, records: list[OffsetRecord]) -> tuple[list[OffsetRecord], list[GroupQueue]]:
        """Return the records by time for the existing queues, and the queues to leave unchanged.

        A queue in the file gets its own time, and counts as missing if it does not exist: its
        broker may be down. The messages in a queue that is not in the file are unknown: it gets the
        earliest time of the group, so that nothing is skipped, but only on request, because groups
        may have no offset in some queues.
        """
        of_topic: dict[tuple[str, str], list[OffsetRecord]] = defaultdict(list)
        for record in records:
            of_topic[record.key.group, record.key.topic].append(record)
        plan: list[OffsetRecord] = []
        left: list[GroupQueue] = []
        for (group, topic), found in of_topic.items():
            there = self._queues[topic]
            known = {record.key[2:] for record in found}
            low = _earliest(found)
            plan += [
                OffsetRecord(record.key, 0, low)
                if self._everywhere and record.key[2:] in there
                else record
                for record in found
                if record.key[2:] in there or not self._is_elsewhere(found)
            ]
            rest = [GroupQueue(group, topic, *queue) for queue in sorted(there - known)]
            if self._earliest:
                plan += [OffsetRecord(key, 0, low) for key in rest]
            else:
                left += rest
        return plan, left

    def _is_elsewhere(self, found: list[OffsetRecord]) -> bool:
        """Whether the topic is only on brokers that are not in the file, and that is intended.

        Then its queues are different ones, and none is missing.
        """
        there = self._queues[found[0].key.topic]
        brokers = {name for name, _ in there}
        return (
            self._earliest
            and bool(there)
            and brokers.isdisjoint(record.key.broker_name for record in found)
        )

    async def _leave(self, key: GroupQueue) -> ImportedOffset:
        """Report a queue that is not in the file, with a reason if the group may never get its
        messages.
        """
        outcome = ImportedOffset(key, result="left")
        address = self._addresses.get((key.topic, key.broker_name))
        try:
            if address is None:
                raise RouteNotFound(key.topic)
            outcome.before = self._offset_before(address, key)
            if outcome.before is None and not await self._is_empty(address, key):
                outcome.reason = (
                    f"{_text(key)}: the file does not know it, and the group has no offset there"
                )
        except MQError as error:
            outcome.result, outcome.reason = "failed", f"{_text(key)}: {error}"
        return outcome

    async def _is_empty(self, address: str, key: GroupQueue) -> bool:
        async with self._limit:
            low = await self._admin.min_offset(address, key.topic, key.queue_id)
            return low >= await self._admin.max_offset(address, key.topic, key.queue_id)

    async def _one(self, record: OffsetRecord) -> ImportedOffset:
        key = record.key
        outcome = ImportedOffset(key)
        address = self._addresses.get((key.topic, key.broker_name))
        if key[2:] not in self._queues[key.topic] or address is None:
            outcome.result, outcome.reason = "missing", self._why_missing(key)
            return outcome
        try:
            outcome.before = self._offset_before(address, key)
            outcome.offset = await self._target(address, record)
            running = self._is_running(key)
            if outcome.before == outcome.offset:
                outcome.result = "same"
            elif running and not self._force:
                outcome.result = "running"
                outcome.reason = f"group {key.group} is running: stop its consumers"
            else:
                await self._set(address, key, outcome.offset)
                outcome.result = "set"
        except (MQError, _Refused) as error:
            outcome.result, outcome.reason = "failed", f"{_text(key)}: {error}"
        return outcome

    def _is_running(self, key: GroupQueue) -> bool:
        """Whether a broker of the topic knows a member; one that was just started knows none yet.
        Raises MQError if none does, and the queue's own broker does not answer.
        """
        said = {
            broker: self._running[address, key.group]
            for (topic, broker), address in self._addresses.items()
            if topic == key.topic
        }
        own = said[key.broker_name]
        if isinstance(own, MQError) and True not in said.values():
            raise own
        return True in said.values()

    def _why_missing(self, key: GroupQueue) -> str:
        if key.topic in self._missing:
            return self._missing[key.topic]
        return f"{_text(key)}: there is no such queue in this cluster"

    def _offset_before(self, address: str, key: GroupQueue) -> int | None:
        table = self._before[address]
        if isinstance(table, MQError):
            raise table
        return table.get(f"{key.topic}@{key.group}", {}).get(key.queue_id)

    async def _target(self, address: str, record: OffsetRecord) -> int:
        queue = MessageQueue(*record.key[1:])
        if self._by_time:
            if record.timestamp is None:
                raise _Refused("the file has no timestamp for it")
            return await self._times.offset_at(queue, record.timestamp)
        async with self._limit:
            end = await self._admin.max_offset(address, queue.topic, queue.queue_id)
        if record.offset > end:
            raise _Refused(f"offset {record.offset} is beyond its end, {end}")
        return record.offset

    async def _set(self, address: str, key: GroupQueue, offset: int) -> None:
        # One by one: of several first offsets of a group at once a Java broker may keep only one
        # and confirm all (ConsumerOffsetManager.commitOffset puts a new table without a lock).
        async with self._turns[address, key.topic, key.group], self._limit:
            await self._admin.update_consumer_offset(
                address, key.group, key.topic, key.queue_id, offset
            )


def _earliest(found: list[OffsetRecord]) -> int | None:
    """Return the earliest time of the records; None if one has no time, which may be the
    earliest.
    """
    times = [record.timestamp for record in found if record.timestamp is not None]
    return min(times) if len(times) == len(found) else None


class _Refused(Exception):
    """An offset that is invalid for its queue."""


def _text(key: GroupQueue) -> str:
    return f"group {key.group}, {key.topic}:{key.broker_name}:{key.queue_id}"
