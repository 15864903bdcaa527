"""Sends input line by line, in batches, and accounts for every line.

Messages with the same key go to one queue, in order; messages without a key go to the queues in
turn, one batch each. Each queue has one request in flight. If an answer is lost, the batch is sent
again: it may be stored twice, but never lost. A message counts when a broker has accepted it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from mq.client.errors import ConnectError, MQError, RequestTimeout
from mq.client.operations.messages.lanes import Lane
from mq.client.operations.messages.sending import (
    BATCH_BYTES,
    ITS_OWN_FAULT,
    Sent,
    parts,
    send_part,
)
from mq.client.send_result import SendStatus
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from mq.client.producer.producer import Producer, SendResult
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.message import Message

_NO_BROKER = (ConnectError, RequestTimeout)


class Producing:
    """Sends messages to the queues of a topic, and tracks the result of each line.

    Attributes:
        stopped: why nothing more can be sent, or None.
        refused: the number of lines that are invalid.
        unsent: lines that were not sent, or whose answer was lost.
        unsafe: the number of messages stored with a status other than SEND_OK, by status.
    """

    def __init__(
        self,
        producer: "Producer",
        queues: "Sequence[MessageQueue]",
        *,
        bound: bool,
        max_body: int,
        refuse: Callable[[int, str], None],
        failed: Callable[[], None],
        acknowledged: "Callable[[SendResult], None] | None" = None,
    ) -> None:
        """`queues` are the possible targets. With `bound` messages go to no other queue, even if
        the broker is down.

        `refuse` is called with an invalid line and the reason, `failed` when sending has `stopped`,
        and `acknowledged` for each message that was sent alone and accepted.
        """
        self._producer = producer
        self._queues = sorted(queues)
        self._bound = bound
        self._is_alone = len({queue.broker_name for queue in queues}) < 2
        self._batch_bytes = min(BATCH_BYTES, max(1, max_body // 2))
        self._refuse = refuse
        self._failed = failed
        self._acknowledged = acknowledged
        self._lanes: dict[tuple[int, bool], Lane[int]] = {}
        self._turn = 0
        self._sent: dict[MessageQueue, Sent] = {}
        self.stopped: MQError | None = None
        self.refused = 0
        self.unsent: list[int] = []
        self.unsafe: Counter[SendStatus] = Counter()

    @property
    def sent(self) -> int:
        """The number of messages that brokers accepted."""
        return sum(one.sent for one in self._sent.values())

    def by_queue(self) -> "list[Sent]":
        """Return the queues that received messages, in order."""
        return [self._sent[queue] for queue in sorted(self._sent)]

    async def put(self, number: int, message: "Message") -> None:
        """Send the message of a line, as soon as there is room for it."""
        key = _key(message)
        if key:
            which = crc32(key.encode("utf-8", "surrogatepass")) % len(self._queues)
        else:
            which = self._turn
        lane = self._lane(which, keyed=bool(key))
        if lane.add(message, number):
            if not key:
                self._pass_on()
            await lane.start()

    def refuse(self, number: int, why: str) -> None:
        """Record an invalid line."""
        self.refused += 1
        self._refuse(number, why)

    def idle(self) -> None:
        """Handle a pause of the input: send waiting messages as soon as possible."""
        waiting = [lane for lane in self._lanes.values() if lane.waiting]
        for lane in waiting:
            lane.hurry()
        if waiting:
            self._pass_on()

    async def flush(self) -> None:
        """Send all waiting messages, and wait for the answers."""
        for lane in self._lanes.values():
            await lane.start()
        await self.land()

    async def land(self) -> None:
        """Wait for the batches in flight, and send nothing more: the waiting messages are
        `left`.
        """
        for lane in self._lanes.values():
            lane.rest()
        for lane in self._lanes.values():
            await lane.land()

    def left(self) -> list[int]:
        """Return the lines that were read and not sent."""
        waiting = [number for lane in self._lanes.values() for number in lane.waiting]
        return sorted({*self.unsent, *waiting})

    def _pass_on(self) -> None:
        self._turn = (self._turn + 1) % len(self._queues)

    def _lane(self, which: int, *, keyed: bool) -> Lane[int]:
        """Return the lane of a queue. Messages with a key may not go elsewhere, so they do not
        share a lane with those that may, unless all are bound.
        """
        name = which, keyed and not self._bound
        lane = self._lanes.get(name)
        if lane is None:
            queue = self._queues[which]
            free = not (keyed or self._bound)

            async def send(batch: "list[Message]", numbers: list[int]) -> None:
                await self._send(batch, numbers, queue, free=free)

            lane = self._lanes[name] = Lane(send)
        return lane

    async def _send(
        self, batch: "list[Message]", numbers: list[int], queue: "MessageQueue", *, free: bool
    ) -> None:
        begin = 0
        for part in parts(batch, queue.topic, self._batch_bytes):
            lines = numbers[begin : begin + len(part)]
            begin += len(part)
            if self.stopped is not None:
                self.unsent += lines
                continue
            await self._send_part(part, lines, queue, free=free)

    async def _send_part(
        self, part: "list[Message]", lines: list[int], queue: "MessageQueue", *, free: bool
    ) -> None:
        try:
            try:
                result = await send_part(self._producer, part, queue)
            except _NO_BROKER:
                if not free or self._is_alone:
                    raise
                result = await send_part(self._producer, part, None)
        except (*ITS_OWN_FAULT, MQError) as error:
            if isinstance(error, ITS_OWN_FAULT):
                if len(part) == 1:
                    self.refuse(lines[0], str(error))
                    return
                for message, line in zip(part, lines, strict=True):
                    await self._send_part([message], [line], queue, free=free)
                return
            assert isinstance(error, MQError)
            self.stopped = self.stopped or error
            self.unsent += lines
            self._failed()
            return
        self._note(result, len(part))

    def _note(self, result: "SendResult", count: int) -> None:
        sent = self._sent.get(result.queue)
        if sent is None:
            sent = self._sent[result.queue] = Sent(result.queue)
        sent.note(result.queue_offset, count)
        if result.status is not SendStatus.SEND_OK:
            self.unsafe[result.status] += count
        if self._acknowledged is not None and count == 1:
            self._acknowledged(result)


class Counting:
    """A replacement for `Producing` that sends nothing: for dry runs."""

    def __init__(self, refuse: Callable[[int, str], None]) -> None:
        self.messages = 0
        self.bytes = 0
        self.refused = 0
        self.stopped: MQError | None = None
        self.unsent: list[int] = []
        self._refuse = refuse

    async def put(self, number: int, message: "Message") -> None:
        self.messages += 1
        self.bytes += len(message.body)

    def refuse(self, number: int, why: str) -> None:
        self.refused += 1
        self._refuse(number, why)

    def idle(self) -> None:
        pass

    async def flush(self) -> None:
        pass


def _key(message: "Message") -> str:
    """Return the text that selects the queue: the sharding key, or the keys."""
    system = message.system
    if system and (sharding := system.get(PropertyKey.SHARDING_KEY)):
        return sharding
    if message.keys:
        return " ".join(message.keys)
    return system.get(PropertyKey.KEYS, "") if system else ""


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return ordered numbers as ranges: the first and last of each."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
