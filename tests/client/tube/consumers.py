"""A consumer between a scripted master and scripted brokers."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from mq.client.tube.consumer import TubeConsumer
from tests.client.tube.scripted import Broker, Master, opened

GROUP = "reports"
TOPIC = "orders"


@asynccontextmanager
async def consuming(
    master: Master | Iterable[Master], *brokers: Broker, **options: Any
) -> AsyncIterator[TubeConsumer]:
    """A consumer that has started; its peers are open until the block ends."""
    masters = [master] if isinstance(master, Master) else list(master)
    topics = options.pop("topics", [TOPIC])
    async with opened(*masters, *brokers):
        addresses = [one.address for one in masters]
        async with TubeConsumer(addresses, GROUP, topics, **options) as consumer:
            yield consumer


@asynccontextmanager
async def holding(
    master: Master, broker: Broker, *numbers: int, **options: Any
) -> AsyncIterator[TubeConsumer]:
    """The same, with these partitions of the broker from its first heartbeat on."""
    async with opened(master, broker):
        master.assigns(*(broker.partition(number) for number in numbers or (0,)))
        topics = options.pop("topics", [TOPIC])
        async with TubeConsumer(master.address, GROUP, topics, **options) as consumer:
            while len(consumer._table) < len(numbers or (0,)):
                await consumer._table.changed()
            yield consumer
