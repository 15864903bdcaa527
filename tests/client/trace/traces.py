"""Reads the trace topic."""

import asyncio
import contextlib
from collections.abc import Callable

from mq.client.errors import MQError
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.trace.entries import (
    TraceEntry,
    decode,
)
from mq.client.transport.session import Session
from mq.protocol.names import TRACE_TOPIC


async def traced(session: Session, enough: Callable[[list[TraceEntry]], bool]) -> list[TraceEntry]:
    """Return the entries of the trace topic, once there are enough."""
    puller = PullConsumer(session)
    async with asyncio.timeout(20):
        while True:
            found: list[TraceEntry] = []
            with contextlib.suppress(MQError):  # the topic is made by the first trace
                for queue in await puller.queues(TRACE_TOPIC):
                    async for message in puller.read(queue):
                        found += decode(message.body)
            if enough(found):
                return found
            await asyncio.sleep(0.05)
