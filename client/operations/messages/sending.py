"""Sends copies of messages in batches, in order per queue, and accounts for every message.

A target queue has one request in flight, so its messages are stored in the order in which they are
passed. If an answer is lost, the batch is sent again: it may be stored twice, but never lost.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from mq.client.errors import ClientError, MessageIllegal, MQError
from mq.client.operations.errors import InvalidRequest, NextStep, NotFound, Parameter, Unavailable
from mq.protocol.bodies import MessageQueue
from mq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from mq.client.producer.producer import Producer, SendResult
    from mq.protocol.message import Message

BATCH_BYTES = 256 * 1024  # of bodies; a larger message is sent alone, compressed
BATCH_MESSAGES = 128
TRIES = 3
RETRY_SECONDS = 0.5
# For a single message these errors mean that the message is at fault, not the broker or the
# network.
ITS_OWN_FAULT = (MessageIllegal, ClientError, ValueError)


def why_refused(error: Exception, queue: MessageQueue) -> str:
    """Return the text for a message that a queue did not accept, with a hint."""
    if isinstance(error, MessageIllegal) and error.names_limit:
        return f"{error}; to have it there, raise maxMessageSize at {queue.broker_name}"
    return str(error)


class QueueMap:
    """Maps source queues to target queues.

    The target is the one that an option names; otherwise the one of the same broker and number;
    otherwise the one of the same number on the first broker that has it; otherwise the number
    modulo the number of queues. A source queue always has the same target, so its order is
    preserved.
    """

    def __init__(self, queues: Sequence[MessageQueue], pairs: Iterable[str] = ()) -> None:
        """`pairs` are `[BROKER:]QUEUE=[BROKER:]QUEUE`. Raises InvalidRequest for an invalid one."""
        self._queues = sorted(queues)  # sorted, so that the same queues give the same targets again
        self._exact: dict[tuple[str | None, int], MessageQueue] = {
            (queue.broker_name, queue.queue_id): queue for queue in queues
        }
        self._by_id: dict[int, MessageQueue] = {}
        for queue in queues:
            self._by_id.setdefault(queue.queue_id, queue)
        self._said: dict[tuple[str | None, int], MessageQueue] = {}
        for pair in pairs:
            source, equals, target = pair.partition("=")
            where = _place(target, pair)
            found = self._by_id.get(where[1]) if where[0] is None else self._exact.get(where)
            if not equals or found is None:
                raise InvalidRequest(
                    Parameter("map"),
                    f" {pair}: there is no queue {target or '?'} to be written to",
                    hint=NextStep.NAME_QUEUES,
                )
            self._said[_place(source, pair)] = found

    def any(self, number: int) -> MessageQueue:
        """Return one of all queues in turn, for messages without a source queue."""
        return self._queues[number % len(self._queues)]

    def __call__(self, broker_name: str, queue_id: int) -> MessageQueue:
        """Return the target of a source queue."""
        return (
            self._said.get((broker_name, queue_id))
            or self._said.get((None, queue_id))
            or self._exact.get((broker_name, queue_id))
            or self._by_id.get(queue_id)
            or self._queues[queue_id % len(self._queues)]
        )


def _place(text: str, pair: str) -> tuple[str | None, int]:
    broker, _, number = text.rpartition(":")
    if not number.isdecimal():
        raise InvalidRequest(Parameter("map"), f" {pair}: {number!r} is not a queue id")
    return broker or None, int(number)


async def queue_map(producer: "Producer", topic: str, pairs: Iterable[str] = ()) -> QueueMap:
    """Create the map onto the queues of `topic`, which must exist. Raises RouteNotFound."""
    await producer.session.route(topic)
    queues = await producer.prepare(topic)
    if not queues:
        raise NotFound(f"topic {topic} has no queue that can be written to")
    return QueueMap(queues, pairs)


class Sent:
    """The number of messages that a queue received, and their range of offsets."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.sent = 0
        self.first_offset: int | None = None
        self.next_offset: int | None = None

    def note(self, offset: int, count: int) -> None:
        """Record that `count` messages were stored, the first one at `offset`."""
        if self.first_offset is None:
            self.first_offset = offset
        self.next_offset = offset + count
        self.sent += count


class Target(Sent):
    """A target queue of copies, and the number of messages that it received."""

    def __init__(self, producer: "Producer", queue: MessageQueue) -> None:
        super().__init__(queue)
        self._producer = producer
        self._turn = asyncio.Lock()

    @property
    def name(self) -> str:
        return f"{self.queue.broker_name}:{self.queue.queue_id}"

    async def send(self, messages: "Sequence[Message]") -> None:
        """Store messages in order. Raises MQError, after `TRIES` attempts; one of ITS_OWN_FAULT if
        the first message that is not `sent` is invalid.
        """
        async with self._turn:
            for part in parts(messages, self.queue.topic):
                await self._send(part)

    async def _send(self, part: "list[Message]") -> None:
        try:
            result = await send_part(self._producer, part, self.queue)
        except ITS_OWN_FAULT:  # a broker may accept less than a whole batch
            if len(part) == 1:
                raise
            half = len(part) // 2
            await self._send(part[:half])
            await self._send(part[half:])
            return
        self.note(result.queue_offset, len(part))


def parts(
    messages: "Sequence[Message]", topic: str, batch_bytes: int = BATCH_BYTES
) -> "Iterator[list[Message]]":
    """Yield messages in batches that may be sent together, in order."""
    alone = topic.startswith(RETRY_PREFIX)  # brokers accept no batches there
    part: list[Message] = []
    size = 0
    for message in messages:
        delayed = bool(message.delay_level or message.deliver_at is not None)
        size += len(message.body)
        if part and (alone or delayed or size > batch_bytes or len(part) >= BATCH_MESSAGES):
            yield part
            part, size = [], len(message.body)
        part.append(message)
        if delayed:  # nothing may follow it in the batch either
            yield part
            part, size = [], 0
    if part:
        yield part


async def send_part(
    producer: "Producer", part: "list[Message]", queue: MessageQueue | None
) -> "SendResult":
    """Store a batch in a queue, or in any queue if None. Raises MQError after `TRIES` attempts."""
    for left in reversed(range(TRIES)):
        try:
            if len(part) == 1:
                return await producer.send(part[0], queue)
            return await producer.send_batch(part, queue)
        except MQError as error:
            if not (left and error.retriable):
                raise
            await asyncio.sleep(RETRY_SECONDS)
    raise AssertionError("the last try returns or raises")


class CopyTarget(Protocol):
    """A target of copies: a queue, or a partition of TubeMQ."""

    queue: MessageQueue

    @property
    def name(self) -> str: ...


def check_same(target: CopyTarget, before: str | None, source: str) -> None:
    """Raise Unavailable if an interrupted run sent the messages of `source` to another queue."""
    if before is not None and before != target.name:
        raise Unavailable(
            f"messages from {source} went to {before} before the interruption, and would go to "
            f"{target.name} now: the queues of topic {target.queue.topic} have changed",
            hint=NextStep.GO_ON_LATER,
        )


class Targets:
    """The target queues of copies, created on first use."""

    def __init__(self, producer: "Producer", queue_of: QueueMap) -> None:
        self._producer = producer
        self._queue_of = queue_of
        self._targets: dict[MessageQueue, Target] = {}

    def of(self, broker_name: str, queue_id: int) -> Target:
        """Return the target of a source queue."""
        return self._of(self._queue_of(broker_name, queue_id))

    def any(self, number: int) -> Target:
        """Return the target of messages without a source queue."""
        return self._of(self._queue_of.any(number))

    def _of(self, queue: MessageQueue) -> Target:
        target = self._targets.get(queue)
        if target is None:
            target = self._targets[queue] = Target(self._producer, queue)
        return target

    def all(self) -> list[Target]:
        """Return the used targets, in order."""
        return [self._targets[queue] for queue in sorted(self._targets)]
