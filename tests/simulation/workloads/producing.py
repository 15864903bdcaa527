"""Producers: single messages, batches, one-way, delayed by a level or to the millisecond."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count

from mq.client import Producer, ProducerOptions, SendResult, Session
from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.protocol.bodies import TopicConfig
from tests.simulation.model import Place, Sent
from tests.simulation.model.content import make
from tests.simulation.workloads.context import Context, Workload

_TRIES = 3
# Topics that are created, each with more queues the next time; a send creates one with the fewest
# (defaultTopicQueueNums of mix.py).
_FRESH, _FEWEST = 6, 4
# The statuses of a SYNC_MASTER that stored a message that is not on a slave.
_MASTER_ONLY = ("SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT")
_Way = Callable[["_Sender", str], Awaitable[None]]


def produce(
    topic: str,
    pause: float,
    ways: tuple[str, ...] = ("single",),
    retries: int = _TRIES - 1,
    *,
    snode: bool = False,
) -> Workload:
    """Send, one after the other, each in a way that chance chooses among ``ways``."""

    async def run(context: Context) -> None:
        options = ProducerOptions(retries=retries)
        client = context.client(f"to-{topic}", snode=snode)
        async with Producer(
            context.name_servers, f"to-{topic}", options, client=client
        ) as producer:
            sender = _Sender(context, producer, 1 + retries)
            while context.now < context.until:
                way = context.random.choice(ways)
                try:
                    await _WAYS[way](sender, topic)
                except MQError as error:
                    context.tell(f"to {topic}: {type(error).__name__}: {error}")
                await asyncio.sleep(context.random.uniform(0.2, 1.8) * pause)

    return run


def create(pause: float) -> Workload:
    """Create topics, and add queues to them; send as soon as that is answered."""

    async def run(context: Context) -> None:
        client = context.client("creator")
        async with (
            Session(context.name_servers, client) as session,
            Producer(session, "creator") as producer,
        ):
            admin, sender = Admin(session), _Sender(context, producer, _TRIES)
            for number in count():
                if context.now >= context.until:
                    return
                topic = f"Fresh{number % _FRESH}"
                try:
                    await _make(context, admin, topic, queues=_FEWEST + number // _FRESH)
                    await _at_once(sender, topic)
                except MQError as error:
                    context.tell(f"to {topic}: {type(error).__name__}: {error}")
                await asyncio.sleep(context.random.uniform(0.2, 1.8) * pause)

    return run


async def _make(context: Context, admin: Admin, topic: str, queues: int) -> None:
    """Have a topic with so many queues at one broker; or nothing: the send creates it."""
    if context.random.random() < 0.3:
        return
    broker = context.random.choice(context.cluster.brokers)
    config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
    await admin.create_topic(context.address(broker.name), config)


@dataclass
class _Sender:
    context: Context
    producer: Producer
    tries: int

    def __post_init__(self) -> None:
        # Offset, and when it was requested and acknowledged.
        self._last: dict[tuple[str, str, int], tuple[int, float, float]] = {}

    def begin(self, topic: str, kind: str) -> Sent:
        context = self.context
        sent = Sent(next(context.numbers), topic, context.now, self.tries, kind)
        context.tell(f"sends message {sent.number} to {topic} ({kind})")
        return context.model.begin(sent)

    def took(self, sent: Sent, result: SendResult, index: int = 0) -> None:
        """A broker has answered that it has a message."""
        queue, offset = result.queue, result.queue_offset + index
        status = result.status.name
        if status not in ("SEND_OK", *_MASTER_ONLY):
            return
        model, now = self.context.model, self.context.now
        if model.shows_confirmed and status != "SEND_OK":
            self.context.cluster.world.met(f"{status} in a controlled set")
            return  # treated as unanswered: the next master may not have it
        key = (sent.topic, queue.broker_name, queue.queue_id)
        self.context.tell(f"message {sent.number} is acknowledged at {key} {offset}: {status}")
        place = Place(*key, offset)
        model.acknowledged(sent, place, now)
        if status == "SEND_OK":
            self.context.on_acknowledged(place, sent.at)
        else:
            sent.unreplicated.append(place)
            self.context.cluster.world.met(status)
        before, at, acknowledged = self._last.get(key, (-1, 0.0, 0.0))
        # Concurrent sends may be acknowledged in any order.
        if (
            offset <= before
            and acknowledged < sent.at
            and not model.gave_again(queue.broker_name, at)
        ):
            model.wrong(f"{key}: {offset} was given after {before}")
        self._last[key] = offset, sent.at, now


async def _single(sender: _Sender, topic: str) -> None:
    sent = sender.begin(topic, "single")
    sender.took(sent, await sender.producer.send(make(sent.number, topic)))


async def _batch(sender: _Sender, topic: str) -> None:
    count = sender.context.random.randint(1, 6)
    batch = [sender.begin(topic, "single") for _ in range(count)]
    result = await sender.producer.send_batch([make(sent.number, topic) for sent in batch])
    for index, sent in enumerate(batch):
        sender.took(sent, result, index)


async def _at_once(sender: _Sender, topic: str) -> None:
    """Several that are under way at the same time."""
    count = sender.context.random.randint(2, 8)
    await asyncio.gather(*(_single(sender, topic) for _ in range(count)), return_exceptions=True)


async def _oneway(sender: _Sender, topic: str) -> None:
    sent = sender.begin(topic, "single")
    sent.tries = 1
    await sender.producer.send_oneway(make(sent.number, topic))


async def _level(sender: _Sender, topic: str) -> None:
    level = sender.context.random.randint(1, len(LEVELS))
    sent = sender.begin(topic, "level")
    begun, before = sender.context.wall, sender.context.clocks()
    result = await sender.producer.send(make(sent.number, topic, delay_level=level))
    broker = result.queue.broker_name
    delay = LEVELS[level - 1] * 1000
    first, last = before[broker], sender.context.clocks()[broker]
    # If the clock was set meanwhile, the message may have been stored just afterwards.
    least = min(first, last - (sender.context.wall - begun))
    sent.delay = delay
    _waits(sender, sent, result, least + delay, max(first, last) + delay)


async def _timer(sender: _Sender, topic: str) -> None:
    context = sender.context
    at = int(context.wall + context.random.uniform(0.1, 20.0) * 1000)
    sent = sender.begin(topic, "timer")
    result = await sender.producer.send(make(sent.number, topic, deliver_at=at))
    now = sender.context.clocks()[result.queue.broker_name]
    _waits(sender, sent, result, at, max(at, now))


def _waits(sender: _Sender, sent: Sent, result: SendResult, least: float, most: float) -> None:
    """A broker has taken what it puts into its queue when it is due."""
    if result.status.name == "SEND_OK":
        sent.acknowledged_at = sender.context.now
        sent.waits_at, sent.due, sent.due_latest = result.queue.broker_name, least, most


# Of messageDelayLevel, in seconds; see mix.py.
LEVELS = (1, 2, 5, 9)
_WAYS: dict[str, _Way] = {
    "single": _single,
    "batch": _batch,
    "at once": _at_once,
    "oneway": _oneway,
    "level": _level,
    "timer": _timer,
}
