"""The metrics of a broker.

Names with the prefix rocketmq_ are those of RocketMQ's exporter (RMQMetricsCollector of
apache/rocketmq-exporter), so that its dashboards work; names with mq_ are specific to this broker.
docs/operations.md lists both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mq.daemons.broker.component import Component
from mq.daemons.listener import Listener
from mq.daemons.metrics import Metric, gauge, of_listeners, of_tasks
from mq.daemons.supervision import Tasks


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """The sources of a broker's metrics: its ports, tasks and components."""

    listeners: Mapping[str, Listener]  # by name; the main one comes first
    tasks: Tasks
    components: Sequence[Component]

    def all(self) -> Iterator[Metric]:
        return (metric for metric in self.with_pauses() if metric is not None)

    def with_pauses(self) -> Iterator[Metric | None]:
        """All metrics; at each None other work may run. A broker has metrics of each topic and
        group, and other requests wait while they are collected.
        """
        yield from of_listeners(self.listeners)
        yield of_tasks(self.tasks)
        yield self._held_pulls()
        yield self._native_path()
        for component in self.components:
            yield from component.metrics()

    def _held_pulls(self) -> Metric:
        main = next(iter(self.listeners.values()))
        held = sum(len(channel.attributes.get("held", ())) for channel in main.channels)
        return gauge("mq_held_pulls", "Pulls waiting for a message.", held)

    def _native_path(self) -> Metric:
        main = next(iter(self.listeners.values()))
        doc = "1 while plain sends take the native path, 0 while Python takes them."
        return gauge("mq_native_path", doc, float(main.dispatcher.bulk is not None))
