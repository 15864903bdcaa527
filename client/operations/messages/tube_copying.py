"""Copies between topics of RocketMQ and TubeMQ, in both directions, in order per queue or
partition.

`tube_conversion` defines the conversion of a message. A queue is copied to the partition with its
number, modulo the number of partitions. A partition is copied to a queue, as from queue to queue.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq.client.errors import MQError
from mq.client.operations import local_files
from mq.client.operations.errors import NotFound
from mq.client.operations.messages import resumable
from mq.client.operations.messages.rate import Rate
from mq.client.operations.messages.sending import RETRY_SECONDS, TRIES, check_same
from mq.client.operations.messages.tube_conversion import attributes_of, message_of
from mq.client.operations.progress import Progress, unseen
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message
from mq.protocol.tube.strings import Partition, PartitionKey

if TYPE_CHECKING:
    from mq.client.operations.messages.sending import Target, Targets
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.message import TubeBatch
    from mq.client.tube.producer import TubeProducer, TubeSendResult

_IN_FLIGHT = 500
# Empty rounds before brokers are queried for their position: they search a part of their index at a
# time, which may contain nothing for this consumer.
_EMPTY_ROUNDS = 3
# How often they are queried, each time after twice as many rounds, until a partition without
# progress is given up: longer than the timeout of a request.
_LOOKS = 5


class TubeTarget:
    """A target partition of copies, and the number of messages that it received; the counterpart of
    `sending.Target`.
    """

    def __init__(self, producer: "TubeProducer", partition: Partition) -> None:
        key = partition.key
        self.queue = MessageQueue(key.topic, str(key.broker_id), key.partition_id)
        self.sent = 0
        self.first_offset: int | None = None
        self.next_offset: int | None = None
        self._producer = producer
        self._partition = partition
        self._turn = asyncio.Lock()

    @property
    def name(self) -> str:
        return str(self._partition.key)

    async def send(self, messages: Sequence[Message]) -> None:
        """Store messages in order. Raises MQError, after `TRIES` attempts.

        All messages from the first one that was not stored, or may not have been, are sent again,
        even if some after it were stored: so none is missing, and the last copies of all are in
        order.
        """
        async with self._turn:
            tries = TRIES
            while messages:
                stored, error = await self._send(messages[:_IN_FLIGHT])
                self.sent += stored
                messages = messages[stored:]
                tries = TRIES if stored else tries
                if error is None:
                    continue
                tries -= 1
                if not tries or not (isinstance(error, MQError) and error.retriable):
                    raise error
                await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, messages: Sequence[Message]) -> tuple[int, BaseException | None]:
        """Send concurrently; returns how many were stored before the first failure, and its
        error.
        """
        sends: list[asyncio.Future[TubeSendResult]] = []
        failure: Exception | None = None
        for message in messages:
            attributes, kind = attributes_of(message.system, message.flag)
            try:
                sent = self._producer.submit(
                    self._partition.topic,
                    bytes(message.body),
                    attributes=attributes,
                    message_type=kind,
                    partition=self._partition,
                )
            except (MQError, ValueError) as error:
                failure = error
                break
            sends.append(sent)
        results = await asyncio.gather(*sends, return_exceptions=True)
        for number, result in enumerate(results):
            if isinstance(result, BaseException):
                return number, result
            if self.first_offset is None:
                self.first_offset = result.append_offset
            self.next_offset = result.append_offset
        return len(results), failure


class TubeTargets:
    """The target partitions of copies, created on first use."""

    def __init__(self, producer: "TubeProducer", topic: str) -> None:
        """Raises NotFound for a topic that cannot be sent to."""
        self._producer = producer
        self._partitions = sorted(producer.partitions(topic))
        if not self._partitions:
            raise NotFound(f"topic {topic} has no partition that can be written to")
        self._targets: dict[Partition, TubeTarget] = {}

    def of(self, broker_name: str, queue_id: int) -> TubeTarget:
        """Return the target of a source queue; queues of several brokers may share a partition."""
        partition = self._partitions[queue_id % len(self._partitions)]
        if partition not in self._targets:
            self._targets[partition] = TubeTarget(self._producer, partition)
        return self._targets[partition]

    def all(self) -> list[TubeTarget]:
        """Return the used targets, in order."""
        return [self._targets[partition] for partition in sorted(self._targets)]


class TubeCopier:
    """Copies messages of a TubeMQ topic to RocketMQ queues, all partitions concurrently.

    It starts at the oldest retained message, or where the copy was interrupted, and ends at the end
    of each partition at the start.
    """

    def __init__(
        self,
        consumer: "TubeBalanceConsumer",
        targets: "Targets",
        topic: str,
        *,
        rate: Rate,
        progress: Progress = unseen,
    ) -> None:
        """`topic` is the target topic."""
        self._consumer = consumer
        self._targets = targets
        self._topic = topic
        self._rate = rate
        self._progress = progress
        self._next: dict[str, int] = {}
        # Messages after `next` that are stored: an interruption may precede their confirmation.
        self._stored: dict[str, list[int]] = {}
        self._done: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, int] = {}  # the ends of partitions that are not read completely yet
        self._failures: list[str] = []
        #: A line for each range of messages that expired before they could be copied.
        self.gaps: list[str] = []

    async def run(self) -> list[str]:
        """Copy everything; returns a line for each partition that could not be copied
        completely.
        """
        for key, readable in sorted((await self._consumer.partitions()).items()):
            if readable:
                await self._begin(key)
        missing = sorted(self._done.keys() - self._next.keys())
        self._failures += [f"{key}: it cannot be read now" for key in missing]
        try:
            with self._progress(0) as step:
                await self._copy(step)
        except MQError as error:
            self._failures.append(str(error))
        return self._failures

    async def _begin(self, key: str) -> None:
        """Read a partition from its first message, or from where the copy was interrupted."""
        before = self._done.get(key, {})
        check_same(self._target(key), before.get("to"), key)
        begin = before.get("next", 0)  # for an expired offset a broker returns the oldest message
        await self._consumer.connect(key, begin)
        self._next[key] = begin
        self._stored[key] = before.get("stored", [])
        offset, end = self._consumer.current_offsets()[key]
        if end < 0:
            self._failures.append(f"{key}: its broker does not say where it ends")
        elif end < begin:
            text = f"{key}: it ends at {end}, and the copy was cut at {begin}: it was recreated"
            self._failures.append(text)
        elif begin < end:
            if before and begin < offset:
                gap = f"{key}: what was from {begin} to {offset} is not kept any more"
                self.gaps = resumable.all_gaps(self.gaps, [gap])
            self._ends[key] = end
            return
        await self._consumer.disconnect(key)

    async def _copy(self, step: Callable[[int], None]) -> None:
        empty, looks = 0, dict.fromkeys(self._ends, 0)
        error: MQError | None = None
        while self._ends:
            if empty >= _EMPTY_ROUNDS * len(self._ends) << max(looks.values()):
                await self._look(looks, error)
                empty = 0
                continue
            try:
                batch = await self._consumer.get_message()
            except MQError as failure:
                if not failure.retriable:
                    raise
                error = failure
                empty += 1
                continue
            empty = 0
            await self._take(batch)
            step(len(batch.messages))
            key = batch.partition_key
            looks[key] = 0
            if self._next[key] >= self._ends[key]:
                await self._end(key)

    async def _end(self, key: str) -> None:
        del self._ends[key]
        await self._consumer.disconnect(key)

    async def _look(self, looks: dict[str, int], error: MQError | None) -> None:
        """Query brokers for their positions; offsets up to there count as read.

        A partition is registered again for that purpose, so that a broker that is slow, has
        assigned the partition to another client, or makes no progress is not mistaken for one that
        was read completely.
        """
        for key, end in list(self._ends.items()):
            try:
                await self._consumer.disconnect(key)
                await self._consumer.connect(key)
                offset = self._consumer.current_offsets()[key].offset
            except MQError as failure:
                offset, error = self._next[key], failure
            if offset >= end:
                self._next[key] = offset
                await self._end(key)
            elif offset > self._next[key]:
                self._next[key], looks[key] = offset, 0
            elif looks[key] < _LOOKS:
                looks[key] += 1
            else:
                text = f"{key}: it was read to {offset} of {end} only: {error}"
                self._failures.append(text)
                await self._end(key)

    async def _take(self, batch: "TubeBatch") -> None:
        """Store the messages of a reply, except those already stored, then confirm it."""
        key = batch.partition_key
        ids = [message.message_id for message in batch.messages]
        known = _common(self._stored[key], ids)
        target = self._target(key)
        if known < len(ids):
            await self._rate.wait(len(ids) - known)
            copies = [message_of(self._topic, message) for message in batch.messages[known:]]
            before = target.sent - known
            try:
                await target.send(copies)
            finally:  # a repetition after an interruption here does not store them again
                self._stored[key] = ids[: target.sent - before]
        offset = await self._consumer.confirm(batch)
        self._stored[key] = self._stored[key][len(ids) :]
        if offset >= 0:
            self._next[key] = offset

    def _target(self, key: str) -> "Target":
        partition = PartitionKey.parse(key)
        return self._targets.of(str(partition.broker_id), partition.partition_id)

    async def run_from(self, path: Path, asked: dict[str, Any]) -> list[str]:
        """Call `run`, save the progress in a file, and resume from it."""

        def save() -> None:
            partitions = dict(self._done)
            for key, offset in self._next.items():
                partitions[key] = {"next": offset, "to": self._target(key).name}
                if stored := self._stored[key]:
                    partitions[key]["stored"] = stored
            resumable.save(path, asked, partitions, self.gaps)

        with local_files.locked(path):
            self._done, self.gaps = resumable.load(path, asked, "a copy")
            for key, values in self._done.items():
                stored = values.get("stored", [])
                if (
                    type(values.get("next")) is not int
                    or type(values.get("to")) is not str
                    or type(stored) is not list
                    or any(type(one) is not int for one in stored)
                ):
                    raise resumable.unreadable(f"{path}: {key} has {values}")
            return await resumable.keep(path, save, self.run)


def _common(stored: Sequence[int], ids: Sequence[int]) -> int:
    """Return how many messages of a reply were stored before the interruption: the first ones, if
    they are the messages stored first with no other in between.
    """
    both = min(len(stored), len(ids))
    return both if list(stored[:both]) == list(ids[:both]) else 0
