"""Starts the collectors of clusters, and gives each cluster its data."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from mq.daemons.console.clusters import Cluster
from mq.daemons.console.collector.collector import Collector
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.history.history import History
from mq.daemons.console.history.recording import ClusterHistory, Recorder
from mq.daemons.supervision import Tasks


async def start_collecting(
    settings: ConsoleSettings, clusters: Sequence[Cluster], tasks: Tasks, parts: AsyncExitStack
) -> None:
    """Start a collector for each cluster, and the history of all. Raises CannotStart."""
    given = settings.collector
    path = Path(given.history_file or Path(settings.console.data_path) / "history.sqlite")
    history = await parts.enter_async_context(History(path, most_series=given.history_series_max))
    for cluster in clusters:
        cluster.refuse(given.limits.refused)
        collector = await parts.enter_async_context(
            Collector(
                cluster.source.name_servers,
                cluster.source.options,
                limits=given.limits,
                rate=given.requests_per_second_max,
                checkup_seconds=given.checkup_minutes * 60,
            )
        )
        cluster.collector = collector
        cluster.history = ClusterHistory(history, cluster.name)
        recorder = Recorder(cluster.name, collector, history)
        tasks.spawn(recorder.run, "console recorder")
