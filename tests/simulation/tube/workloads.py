"""The TubeMQ clients of a simulation. Each reports its requests and their answers to the model."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from mq.client.errors import MQError
from mq.client.tube import (
    ConsumeFrom,
    TubeBalanceConsumer,
    TubeConsumer,
    TubeConsumerOptions,
    TubeError,
    TubeProducer,
    TubeProducerOptions,
)
from tests.simulation.tube.cluster import TubeCluster
from tests.simulation.tube.model import Group, Model, Sent

KINDS = ("paid", "sent")
_PRODUCER = TubeProducerOptions(
    timeout=8.0,
    connect_timeout=2.0,
    heartbeat_interval=2.0,
    heartbeat_interval_after_failures=4.0,
    unavailable_seconds=3.0,
    link_window=5.0,
    link_forbidden_seconds=5.0,
    close_wait=2.0,
)
_CONSUMER: dict[str, Any] = {
    "timeout": 8.0,
    "connect_timeout": 2.0,
    "heartbeat_interval": 2.0,
    "heartbeat_interval_after_failures": 4.0,
    "consume_from": ConsumeFrom.FIRST,
    "confirm_wait": 12.0,
    "rebalance_wait": 1.0,
    "close_wait": 2.0,
    "ready_wait": 3.0,
}
_LOOKS_FOR_PARTITIONS = 4.0
# Seconds of work on the messages of a get; some are redelivered because they are not confirmed, or
# not in time.
_WORKS = (0.0, 0.0, 0.05, 0.3, 1.5)
_CONSUMED, _FORGOTTEN = 0.95, 0.03


@dataclass
class Context:
    """The arguments of every workload."""

    cluster: TubeCluster
    model: Model
    until: float  # when workloads stop to begin anything new
    bursts: "count[int]" = field(default_factory=count)
    #: The consumers of groups that run now, by the names of their clients.
    members: dict[str, tuple[Group, TubeConsumer | TubeBalanceConsumer]] = field(
        default_factory=dict
    )

    @property
    def now(self) -> float:
        return self.cluster.world.now

    @property
    def is_over(self) -> bool:
        return self.now >= self.until

    def starts(self, key: str) -> int:
        """How often the broker of a partition was started so far."""
        return int(self.cluster.brokers[int(key.partition(":")[0]) - 1].starts)

    def chance(self, name: str) -> random.Random:
        """Of each start of a client another."""
        process = self.cluster.world.current
        assert process is not None
        return self.cluster.world.stream(f"{name} of {process.name}", is_noisy=False)


Workload = Callable[[Context], Awaitable[None]]


# producers ----------------------------------------------------------------------------------------


def produce(topics: tuple[str, ...], pause: float) -> Workload:
    """Send messages one by one, and several of one partition at once."""

    async def run(context: Context) -> None:
        chance = context.chance("sends")
        while not context.is_over:
            try:
                masters = context.cluster.master_list
                async with TubeProducer(masters, topics, _PRODUCER) as producer:
                    await _send(context, producer, topics, pause, chance)
            except MQError:
                await asyncio.sleep(0.5)

    return run


async def _send(
    context: Context,
    producer: TubeProducer,
    topics: tuple[str, ...],
    pause: float,
    chance: random.Random,
) -> None:
    while not context.is_over:
        await asyncio.sleep(chance.expovariate(1 / pause))
        topic, kind = chance.choice(topics), chance.choice(KINDS)
        filler = chance.randbytes(chance.choice((0, 10, 100, 700)))
        partitions = producer.partitions(topic)
        if chance.random() < 0.6 or not partitions:
            sent = context.model.sends(topic, kind, filler)
            await _note(context, sent, producer.send(topic, sent.body, message_type=kind))
            continue
        partition, burst, waiting = chance.choice(partitions), next(context.bursts), []
        for place in range(chance.randint(2, 6)):
            sent = context.model.sends(topic, kind, filler, (burst, place))
            try:
                future = producer.submit(topic, sent.body, message_type=kind, partition=partition)
            except MQError:
                break
            waiting.append((sent, future))
        for sent, future in waiting:
            await _note(context, sent, future)


async def _note(context: Context, sent: Sent, answer: Awaitable[Any]) -> None:
    try:
        result = await answer
    except MQError:
        return  # it may be stored, or not
    context.model.acknowledged(sent, result)


# consumers ----------------------------------------------------------------------------------------


def consume(group: Group, name: str, stays: float, way: str) -> Workload:
    """A member that comes and goes until the work ends, and stays then. ``way``: to confirm."""

    async def run(context: Context) -> None:
        chance = context.chance("gets")
        options = TubeConsumerOptions(**_CONSUMER, confirm_locally=way == "locally")
        topics = {group.topic: None if group.kinds is None else list(group.kinds)}
        while True:
            consumer = TubeConsumer(context.cluster.master_list, group.name, topics, options)
            seconds = None if context.is_over else stays * chance.uniform(0.5, 1.5)
            work = _iterate if way == "iterate" else _get_and_confirm
            try:
                async with consumer, asyncio.timeout(seconds):
                    context.members[name] = group, consumer
                    await work(context, group, consumer, chance)
            except (MQError, TimeoutError):
                pass
            finally:
                context.members.pop(name, None)
            await asyncio.sleep(chance.choice((0.1, 1.0, 4.0)))

    return run


async def _get_and_confirm(
    context: Context,
    group: Group,
    consumer: TubeConsumer | TubeBalanceConsumer,
    chance: random.Random,
) -> None:
    while True:
        await _get_one(context, group, consumer, chance)


async def _get_one(
    context: Context,
    group: Group,
    consumer: TubeConsumer | TubeBalanceConsumer,
    chance: random.Random,
) -> None:
    try:
        batch = await consumer.get_message()
    except TubeError as error:
        if not error.retriable:
            raise
        await asyncio.sleep(0.05)
        return
    except MQError:
        await asyncio.sleep(0.3)
        return
    member, start = consumer.client_id, context.starts(batch.partition_key)
    numbers = context.model.given(group, batch, member, start)
    await asyncio.sleep(chance.choice(_WORKS))
    if chance.random() < _FORGOTTEN and not context.is_over:
        return
    is_consumed = chance.random() < _CONSUMED
    if is_consumed:
        group.asked.update(numbers)
    try:
        reached = await consumer.confirm(batch, consumed=is_consumed)
    except MQError:
        await asyncio.sleep(0.05)
        return
    if is_consumed and start == context.starts(batch.partition_key):
        context.model.confirmed(group, batch, reached, member, start)


async def _iterate(
    context: Context,
    group: Group,
    consumer: TubeConsumer | TubeBalanceConsumer,
    chance: random.Random,
) -> None:
    async for message in consumer:
        number = context.model.given_one(group, message)
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.02)))
        group.asked.add(number)  # asking for the next one confirms it


def balance(group: Group, name: str, place: tuple[int, int]) -> Workload:
    """A member of a group whose members choose their partitions: each n-th is its own."""

    async def run(context: Context) -> None:
        chance = context.chance("gets")
        options = TubeConsumerOptions(**_CONSUMER)
        while True:
            masters = context.cluster.master_list
            consumer = TubeBalanceConsumer(masters, group.name, [group.topic], options, node=place)
            try:
                async with consumer:
                    context.members[name] = group, consumer
                    while True:
                        await _choose(consumer, place)
                        until = context.now + _LOOKS_FOR_PARTITIONS
                        while context.now < until:
                            await _get_one(context, group, consumer, chance)
            except MQError:
                pass
            finally:
                context.members.pop(name, None)
            await asyncio.sleep(1.0)

    return run


async def _choose(consumer: TubeBalanceConsumer, place: tuple[int, int]) -> None:
    try:
        known = await consumer.partitions()
    except MQError:
        return
    members, number = place
    for key in sorted(known)[number::members]:
        if key not in consumer.current_offsets() and known[key]:
            try:
                await consumer.connect(key)
            except MQError:
                continue
    # Of a longer list each n-th is another.
    for key in [key for key in consumer.current_offsets() if key in known]:
        if sorted(known).index(key) % members != number:
            await consumer.disconnect(key)
