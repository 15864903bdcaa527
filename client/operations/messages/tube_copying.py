"""Copies between topics of RocketMQ and of TubeMQ, both ways, each queue or partition in order.

What becomes of a message says `tube_conversion`. A queue goes to a partition: that of its number,
modulo as many as there are. A partition goes to a queue, as from queue to queue.
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
# So often in a row nothing is found before brokers are asked how far they have looked: they look at
# a part of their index at a time, and may find nothing for us in it.
_EMPTY_ROUNDS = 3
# So often they are asked, each time after twice as many rounds, until one that is not further than
# before is given up: that takes longer than a request may.
_LOOKS = 5


class TubeTarget:
    """A partition that copies go to, and how many it has got: in place of `sending.Target`."""

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
        """Store messages in their order. Raises MQError, after `TRIES` tries.

        From the first on that was not stored, or may not have been, they are sent again, though
        some behind it may have been: so none is left out, and the last of each is in order.
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
        """Send side by side; how many were stored before one that was not, and why it was not."""
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
    """The partitions of a topic that copies go to, each made when it is first used."""

    def __init__(self, producer: "TubeProducer", topic: str) -> None:
        """Raises NotFound for a topic that cannot be sent to."""
        self._producer = producer
        self._partitions = sorted(producer.partitions(topic))
        if not self._partitions:
            raise NotFound(f"topic {topic} has no partition that can be written to")
        self._targets: dict[Partition, TubeTarget] = {}

    def of(self, broker_name: str, queue_id: int) -> TubeTarget:
        """Where the messages of a source queue go; queues of brokers may share a partition."""
        partition = self._partitions[queue_id % len(self._partitions)]
        if partition not in self._targets:
            self._targets[partition] = TubeTarget(self._producer, partition)
        return self._targets[partition]

    def all(self) -> list[TubeTarget]:
        """Those that were used, in order."""
        return [self._targets[partition] for partition in sorted(self._targets)]


class TubeCopier:
    """Takes messages of a topic of TubeMQ to queues of RocketMQ, partition beside partition.

    From the oldest that is kept, or where the copy was cut, to what was the end when it began.
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
        """`topic` is what the copies are of."""
        self._consumer = consumer
        self._targets = targets
        self._topic = topic
        self._rate = rate
        self._progress = progress
        self._next: dict[str, int] = {}
        self._done: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, int] = {}  # of partitions that are not read to there yet
        self._failures: list[str] = []
        #: A line for each stretch of messages that were gone before they could be copied.
        self.gaps: list[str] = []

    async def run(self) -> list[str]:
        """Copy all; returns a line for each partition that could not be copied to its end."""
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
        """Read a partition from its first message on, or from where the copy was cut."""
        before = self._done.get(key, {})
        check_same(self._target(key), before.get("to"), key)
        begin = before.get("next", 0)  # of what is gone, a broker takes the oldest
        await self._consumer.connect(key, begin)
        self._next[key] = begin
        offset, end = self._consumer.current_offsets()[key]
        if end < 0:
            self._failures.append(f"{key}: its broker does not say where it ends")
        elif end < begin:
            text = f"{key}: it ends at {end}, and the copy was cut at {begin}: it was made anew"
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
        """Ask brokers how far they have looked; what is behind the last of ours counts as read.

        A partition is registered again for that: who answers slowly, has taken it from us, or does
        not go on is not taken for one that was read.
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
        """Store a reply's messages, then go on behind it."""
        await self._rate.wait(len(batch.messages))
        copies = [message_of(self._topic, message) for message in batch.messages]
        await self._target(batch.partition_key).send(copies)
        offset = await self._consumer.confirm(batch)
        if offset >= 0:
            self._next[batch.partition_key] = offset

    def _target(self, key: str) -> "Target":
        partition = PartitionKey.parse(key)
        return self._targets.of(str(partition.broker_id), partition.partition_id)

    async def run_from(self, path: Path, asked: dict[str, Any]) -> list[str]:
        """`run` that keeps in a file how far it is, and goes on from there."""

        def save() -> None:
            partitions = dict(self._done)
            for key, offset in self._next.items():
                partitions[key] = {"next": offset, "to": self._target(key).name}
            resumable.save(path, asked, partitions, self.gaps)

        with local_files.locked(path):
            self._done, self.gaps = resumable.load(path, asked, "a copy")
            for key, values in self._done.items():
                if type(values.get("next")) is not int or type(values.get("to")) is not str:
                    raise resumable.unreadable(f"{path}: {key} has {values}")
            return await resumable.keep(path, save, self.run)
