"""Waits for snapshots of a console's collector."""

import asyncio
from collections.abc import Callable

from mq.daemons.console.collector.collector import Collector
from mq.daemons.console.collector.snapshot import Snapshot


async def seen(collector: Collector, condition: Callable[[Snapshot], object]) -> Snapshot:
    """Return the first snapshot for which the condition holds."""
    async with asyncio.timeout(60):
        snapshot = collector.snapshot
        while not condition(snapshot):
            snapshot = await collector.newer(snapshot)
        return snapshot
