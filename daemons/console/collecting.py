"""Starts what looks at clusters in the background, and gives each cluster what it finds."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from mq.daemons.console.clusters import Cluster
from mq.daemons.console.collector.snapshot import Snapshot
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.supervision import Tasks


@dataclass
class _Nothing:
    """Stands where nobody collects."""

    snapshot: Snapshot = field(default_factory=Snapshot)


async def start_collecting(
    settings: ConsoleSettings, clusters: Sequence[Cluster], tasks: Tasks, parts: AsyncExitStack
) -> None:
    """Start a collector for each cluster."""
    for cluster in clusters:
        cluster.collector = _Nothing()
