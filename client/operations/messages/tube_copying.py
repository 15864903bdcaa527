"""Copies between topics of RocketMQ and of TubeMQ, both ways, each queue or partition in order.

RocketMQ                 TubeMQ
tag                      message type
keys, user's properties  attributes, KEYS among them; what may not be in one is written as %XX,
                         and QUOTED says so
queue                    partition: of the number, modulo as many as there are
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mq.client.errors import MQError
from mq.client.operations import local_files
from mq.client.operations.errors import NotFound
from mq.client.operations.messages import resumable
from mq.client.operations.messages.importing import SAVE_SECONDS
from mq.client.operations.messages.rate import Rate
from mq.client.operations.messages.sending import check_same
from mq.client.operations.progress import Progress, unseen
from mq.client.tube.errors import NothingToRead
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message
from mq.protocol.properties import PropertyKey
from mq.protocol.tube.payload import MESSAGE_TIME, MESSAGE_TYPE
from mq.protocol.tube.strings import Partition, PartitionKey

if TYPE_CHECKING:
    from mq.client.operations.messages.sending import Target, Targets
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.message import TubeBatch, TubeMessage
    from mq.client.tube.producer import TubeProducer

#: An attribute that says that others have %XX in them.
QUOTED = "mqQuoted"

_IN_FLIGHT = 500
# So often in a row nothing is found before partitions count as read: a broker looks at a part of
# its index at a time, and may find nothing for us in it.
_EMPTY_ROUNDS = 3
_QUOTES = {ord(letter): f"%{ord(letter):02X}" for letter in "%,="}


def attributes_of(properties: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The attributes and the type of a copy, of the properties of a message."""
    attributes: dict[str, str] = {}
    quoted = False
    for name, value in properties.items():
        if name == PropertyKey.TAGS or not name.strip() or not value.strip():
            continue
        key, text = _quote(name), _quote(value)
        quoted = quoted or (key, text) != (name, value)
        attributes[key] = text
    if quoted:
        attributes[QUOTED] = "1"
    tag = properties.get(PropertyKey.TAGS)
    return attributes, _quote(tag) if tag and tag.strip() else None


def _quote(text: str) -> str:
    quoted = text.translate(_QUOTES)
    for reserved in (MESSAGE_TYPE, MESSAGE_TIME):
        quoted = quoted.replace(reserved, reserved.replace("$", "%24"))
    return quoted


def message_of(topic: str, message: "TubeMessage") -> Message:
    """A copy for RocketMQ of a message of TubeMQ. Its message time becomes a property."""
    attributes = dict(message.attributes)
    quoted = attributes.pop(QUOTED, None) is not None
    copy = Message(topic, message.body, flag=0)
    for name, value in attributes.items():
        if name == MESSAGE_TYPE:
            copy.system[PropertyKey.TAGS] = unquote(value) if quoted else value
        elif name == MESSAGE_TIME:
            copy.system["msgTime"] = value
        else:
            copy.system[unquote(name) if quoted else name] = unquote(value) if quoted else value
    return copy


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
        """Store messages in their order. Raises MQError, and leaves out nothing before it then:
        some behind it may have been stored."""
        async with self._turn:
            for begin in range(0, len(messages), _IN_FLIGHT):
                await self._send(messages[begin : begin + _IN_FLIGHT])

    async def _send(self, messages: Sequence[Message]) -> None:
        sends = []
        try:
            for message in messages:
                attributes, kind = attributes_of(message.system)
                sends.append(
                    self._producer.submit(
                        self._partition.topic,
                        bytes(message.body),
                        attributes=attributes,
                        message_type=kind,
                        partition=self._partition,
                    )
                )
        finally:
            results = await asyncio.gather(*sends, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            if self.first_offset is None:
                self.first_offset = result.append_offset
            self.next_offset = result.append_offset
            self.sent += 1


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

    async def run(self) -> list[str]:
        """Copy all; returns a line for what could not be copied, which ends it."""
        consumer = self._consumer
        ends: dict[str, int] = {}
        for key, readable in sorted((await consumer.partitions()).items()):
            if not readable:
                continue
            before = self._done.get(key, {})
            check_same(self._target(key), before.get("to"), key)
            begin = before.get("next", 0)  # of what is gone, a broker takes the oldest
            await consumer.connect(key, begin)
            self._next[key] = begin
            offset = consumer.current_offsets()[key]
            if begin < offset.most:
                ends[key] = offset.most
            else:
                await consumer.disconnect(key)
        missing = sorted(self._done.keys() - self._next.keys())
        failures = [f"{key}: it cannot be read now" for key in missing]
        try:
            with self._progress(0) as step:
                await self._copy(ends, step)
        except MQError as error:
            failures.append(str(error))
        else:
            held = consumer.current_offsets()
            failures += [f"{key}: somebody else has taken it" for key in ends if key not in held]
        return failures

    async def _copy(self, ends: dict[str, int], step: Any) -> None:
        empty = 0
        while ends and empty < _EMPTY_ROUNDS * len(ends):
            try:
                batch = await self._consumer.get_message()
            except NothingToRead:
                empty += 1
                continue
            empty = 0
            await self._take(batch)
            step(len(batch.messages))
            key = batch.partition_key
            if key in ends and self._next[key] >= ends[key]:
                del ends[key]
                await self._consumer.disconnect(key)

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
            resumable.save(path, asked, partitions)

        async def save_again() -> None:
            while True:
                await asyncio.sleep(SAVE_SECONDS)
                save()

        with local_files.locked(path):
            self._done = resumable.load(path, asked, "a copy")
            for key, values in self._done.items():
                if type(values.get("next")) is not int or type(values.get("to")) is not str:
                    raise resumable.unreadable(f"{path}: {key} has {values}")
            save()
            saving = asyncio.ensure_future(save_again())
            try:
                failures = await self.run()
            except BaseException:
                save()
                raise
            finally:
                saving.cancel()
                with suppress(asyncio.CancelledError):
                    await saving
            if failures:
                save()
            else:
                local_files.remove(path)
        return failures
