"""Records snapshots every ten seconds: each reply once.

    cluster  in_rate out_rate
    broker   in_rate out_rate in_bytes_rate disk_used memory response_ms      by NAME:ID
    topic    in_rate out_rate lag
    group    consume_rate lag

An unknown metric leaves a gap. A topic or group whose values were always 0 gets no series: most of
a large cluster is idle.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from mq.client.operations.broker_stats import fits_counter
from mq.daemons.console.collector.collector import Collector
from mq.daemons.console.collector.snapshot import BrokerRow, Snapshot
from mq.daemons.console.history.history import History
from mq.daemons.console.history.points import Key, Point

RECORD_SECONDS = 10.0

CLUSTER_FIGURES = ("in_rate", "out_rate")
BROKER_FIGURES = (
    *("in_rate", "out_rate", "in_bytes_rate"),
    *("disk_used", "memory", "response_ms"),
)
TOPIC_FIGURES = ("in_rate", "out_rate", "lag")
GROUP_FIGURES = ("consume_rate", "lag")


def broker_subject(broker: BrokerRow) -> str:
    """Return the subject of a broker's series, which is independent of its address."""
    return f"{broker.name}:{broker.id}"


class Recorder:
    """Writes the snapshots of one cluster to the history. `cluster` is its name in the console."""

    def __init__(self, cluster: str, collector: Collector, history: History) -> None:
        self._cluster = cluster
        self._collector = collector
        self._history = history
        self._rows: dict[tuple[str, str], object] = {}  # the rows recorded last

    async def run(self) -> None:
        """Record until cancelled."""
        while True:
            await asyncio.sleep(RECORD_SECONDS)
            self.record(self._collector.snapshot)

    def record(self, snapshot: Snapshot, at: int | None = None) -> None:
        """Record one snapshot; `at` is in s since 1970, by default the snapshot's time."""
        moment = snapshot.at // 1000 if at is None else at
        written: dict[tuple[str, str], object] = {}
        for broker in snapshot.brokers:
            subject = broker_subject(broker)
            self._row(written, "broker", subject, broker, BROKER_FIGURES, moment, always=True)
        for cluster in snapshot.clusters:
            self._row(written, "cluster", cluster.name, cluster, CLUSTER_FIGURES, moment,
                      always=True)  # fmt: skip
        for topic in snapshot.topics:
            self._row(written, "topic", topic.name, topic, TOPIC_FIGURES, moment)
        for group in snapshot.groups:
            self._row(written, "group", group.name, group, GROUP_FIGURES, moment)
        self._rows = written

    def _row(
        self,
        written: dict[tuple[str, str], object],
        kind: str,
        subject: str,
        row: Any,
        metrics: Iterable[str],
        at: int,
        *,
        always: bool = False,
    ) -> None:
        key = (kind, subject)
        written[key] = row
        if row.problem is not None or self._rows.get(key) is row:
            return  # the same object: there was no new reply
        for metric in metrics:
            value = getattr(row, metric)
            series = Key(self._cluster, kind, subject, metric)
            if value is None or not fits_counter(value):
                continue
            if value or always or series in self._history:
                self._history.add(series, float(value), at)


class ClusterHistory:
    """The series of one cluster."""

    def __init__(self, history: History, cluster: str) -> None:
        self._history = history
        self._cluster = cluster

    @property
    def problem(self) -> str | None:
        """Why metrics are not kept; None without a problem."""
        return self._history.problem

    async def read(self, kind: str, subject: str, metric: str, begin: int, end: int) -> list[Point]:
        """Return points of a metric, by the names above, from `begin` to before `end` in s.

        For the last day all points, for older times one per five minutes.
        """
        return await self._history.read(Key(self._cluster, kind, subject, metric), begin, end)
