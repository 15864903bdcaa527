"""Topics that are created and deleted with messages in them.

No message of a deleted topic reappears, and no message of the current topic is lost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from mq.client import Producer, ProducerOptions, PullConsumer, Session
from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.protocol.bodies import MessageQueue, TopicConfig
from tests.simulation.model import Sent
from tests.simulation.model.content import make, number_of
from tests.simulation.workloads.context import Context, Workload

TOPIC = "Brief"
_QUEUES = 2


class _Taken(NamedTuple):
    """A message that was acknowledged: when it was sent and that, and where it lies."""

    sent: float
    at: float
    queue_id: int
    offset: int


@dataclass
class _Life:
    """Of the topic at one broker, from when it was made."""

    taken: dict[int, _Taken] = field(default_factory=dict)
    is_sure: bool = True  # no deletion awaits its answer


def come_and_go() -> Workload:
    """Make the topic at a broker, fill it, look, delete it; again and again."""

    async def run(context: Context) -> None:
        options = ProducerOptions(retries=0)
        names, client = context.name_servers, context.client("passer")
        async with (
            Session(names, client) as session,
            Producer(names, "passers", options, client=context.client("passer-p")) as producer,
            PullConsumer(names, "passers", client=context.client("passer-c")) as reader,
        ):
            await _Passer(context, Admin(session), producer, reader).run()

    return run


class _Passer:
    def __init__(
        self, context: Context, admin: Admin, producer: Producer, reader: PullConsumer
    ) -> None:
        self._context, self._admin = context, admin
        self._producer, self._reader = producer, reader
        self._broker: str = context.random.choice(context.cluster.brokers).name
        self._gone: dict[int, float] = {}  # acknowledged, and when they were deleted
        self._life = _Life()

    @property
    def _address(self) -> str:
        return self._context.address(self._broker)

    async def run(self) -> None:
        context = self._context
        config = TopicConfig(topic_name=TOPIC, read_queue_nums=_QUEUES, write_queue_nums=_QUEUES)
        # One that was killed may have left something: that is not known here.
        self._life.is_sure = await self._until_done(
            lambda: self._admin.delete_topic_in_broker(self._address, TOPIC)
        )
        is_sure = self._life.is_sure
        while context.now < context.until:
            await self._until_done(lambda: self._admin.create_topic(self._address, config))
            self._life = _Life(is_sure=is_sure)
            for _ in range(context.random.randint(1, 3)):
                for _ in range(context.random.randint(1, 6)):
                    await self._send()
                await self._look()
                await asyncio.sleep(context.random.uniform(0.2, 2.0))
            if not await self._until_done(
                lambda: self._admin.delete_topic_in_broker(self._address, TOPIC)
            ):
                is_sure = False
            self._gone.update(dict.fromkeys(self._life.taken, context.now))

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Whether it was done the first time that it was asked for."""
        for number in range(1000):
            self._context.model.requests += 1
            try:
                await work()
            except MQError as error:
                self._context.tell(f"{TOPIC}: {error!r}")
                await asyncio.sleep(0.5)
            else:
                return number == 0
        return False

    async def _send(self) -> None:
        context = self._context
        sent = context.model.begin(Sent(next(context.numbers), TOPIC, context.now, kind="passing"))
        queue = MessageQueue(TOPIC, self._broker, context.random.randrange(_QUEUES))
        try:
            result = await self._producer.send(make(sent.number, TOPIC), queue, timeout=2.0)
        except MQError as error:
            context.tell(f"message {sent.number}: {error!r}")
            return
        if result.status.name == "SEND_OK":
            context.tell(f"message {sent.number} is acknowledged at {result.queue_offset}")
            self._life.taken[sent.number] = _Taken(
                sent.at, context.now, queue.queue_id, result.queue_offset
            )

    async def _look(self) -> None:
        """Read what the topic holds at the broker now."""
        found: set[int] = set()
        minimums = dict.fromkeys(range(_QUEUES), 0)
        try:
            for queue_id in range(_QUEUES):
                queue = MessageQueue(TOPIC, self._broker, queue_id)
                offset, end = 0, await self._reader.max_offset(queue)
                while offset < end:
                    result = await self._reader.pull(queue, offset)
                    # The log goes before the queue, whose beginning follows it.
                    first = min((one.queue_offset for one in result.messages), default=0)
                    minimums[queue_id] = max(result.min_offset, first if offset == 0 else 0)
                    found.update(number_of(message) for message in result.messages)
                    if result.next_offset <= offset:
                        break
                    offset = result.next_offset
        except MQError as error:
            self._context.tell(f"{TOPIC} cannot be read: {error!r}")
            return
        model, name = self._context.model, self._broker
        for number in sorted(found & self._gone.keys()):
            # A slave keeps the queues of a topic that its master deletes until they have messages
            # again (docs/decisions/0052).
            has_slaves = self._context.cluster.slaves or self._context.cluster.members
            if not has_slaves and not model.has_failed_over(name, self._gone[number]):
                model.wrong(f"message {number} of {TOPIC} at {name} is back after its deletion")
        for number, taken in self._life.taken.items():
            may_be_gone = (
                not self._life.is_sure
                or self._context.may_lag()
                or model.may_have_lost(name, taken.sent, taken.at)
                or model.is_past(taken.offset, minimums[taken.queue_id])
            )
            if number not in found and not may_be_gone:
                model.wrong(
                    f"message {number} of {TOPIC} at {name}, taken at {taken.at:.6f}, is not there"
                )
