"""The measurements of `mq tube bench`: many producers, and a reader, in this process."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from mq.cli.runtime.interruption import received
from mq.cli.show.result import Row
from mq.client.machine import clock

if TYPE_CHECKING:
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.producer import TubeProducer

_LONGEST = 3_600_000_000  # microseconds; longer latencies count as this
_DIGITS = 3  # significant digits of a latency


async def measure_sending(
    producers: "Sequence[TubeProducer]", topic: str, messages: int, size: int, in_flight: int
) -> Row:
    """Send `messages` of a size, shared among producers. Raises the errors of sends.

    If a signal ends it (`received`), the row is of the messages sent so far.
    """
    from hdrh.histogram import HdrHistogram

    latencies = HdrHistogram(1, _LONGEST, _DIGITS)
    body = bytes(size)
    left = messages

    async def run(producer: "TubeProducer") -> None:
        nonlocal left
        while left > 0:
            left -= 1
            begun = clock.monotonic()
            await producer.submit(topic, body)
            latencies.record_value(max(1, int((clock.monotonic() - begun) * 1_000_000)))

    async with AsyncExitStack() as stack:
        for producer in producers:
            await stack.enter_async_context(producer)
        begun = clock.monotonic()
        try:
            await asyncio.gather(*(run(one) for one in producers for _ in range(in_flight)))
        except asyncio.CancelledError:
            if received() is None:
                raise
        seconds = clock.monotonic() - begun
    messages = latencies.get_total_count()
    quantiles = [latencies.get_value_at_percentile(each) / 1000 for each in (50, 99, 100)]
    return _row("producers", messages, size, seconds, quantiles)


async def measure_reading(
    consumer: "TubeBalanceConsumer",
    messages: int,
    size: int,
    ready: asyncio.Event,
) -> Row:
    """Read `messages` new messages; sets `ready` when it has started. A signal ends it early."""
    from mq.cli.tube_reading import all_connected, batches

    seen, begun, seconds = 0, 0.0, 0.0
    try:
        async with consumer, all_connected(consumer):
            ready.set()
            try:
                async for batch, _ in batches(consumer, None, messages):
                    begun = begun or clock.monotonic()
                    seen += len(batch.messages)
                    await consumer.confirm(batch)
            except asyncio.CancelledError:
                if received() is None:
                    raise
            seconds = clock.monotonic() - begun if begun else 0.0
    finally:
        ready.set()
    return _row("reader", seen, size, seconds, [None, None, None])


def _row(
    role: str, messages: int, size: int, seconds: float, quantiles: "Sequence[float | None]"
) -> Row:
    rate = messages / max(seconds, 1e-9)
    return (role, messages, round(rate), round(rate * size / 1e6, 1), *quantiles)
