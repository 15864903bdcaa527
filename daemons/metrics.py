"""Metrics of daemons, for any exporter: Prometheus or StatsD.

They are computed when they are read, from counters that exist anyway.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from mq.daemons.listener import Listener
from mq.daemons.memory import CLIENTS_SETTING, CONNECTION_SETTING, MemoryBudget
from mq.daemons.supervision import Tasks
from mq.protocol.codes import RequestCode

LOOK_SECONDS = 0.1


class Kind(StrEnum):
    """The type of a metric for Prometheus. A counter only grows and starts again with the process;
    a summary has a label `quantile`.
    """

    counter = "counter"
    gauge = "gauge"
    summary = "summary"


@dataclass(frozen=True)
class Metric:
    """A metric with its value for each combination of labels.

    ``constant`` are labels that identify the daemon; StatsD does not get them.
    """

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...]
    values: Sequence[tuple[tuple[str, ...], float]]
    constant: Mapping[str, str] = field(default_factory=dict)


def gauge(name: str, doc: str, value: float, **constant: str) -> Metric:
    """A single value that goes up and down."""
    return Metric(name, Kind.gauge, doc, (), [((), value)], constant)


def counter(name: str, doc: str, value: float, **constant: str) -> Metric:
    """A single value that only grows."""
    return Metric(name, Kind.counter, doc, (), [((), value)], constant)


def of_listeners(listeners: Mapping[str, Listener]) -> Iterator[Metric]:
    """The counters of listeners, by their names."""
    names = ("listener",)
    connections = [((n,), float(len(one.channels))) for n, one in listeners.items()]
    yield Metric("mq_connections", Kind.gauge, "Open connections.", names, connections)
    waiting = [((n,), float(one.backlog.size)) for n, one in listeners.items()]
    doc = "Bytes received that wait to be handled."
    yield Metric("mq_backlog_bytes", Kind.gauge, doc, names, waiting)
    bad = [((n,), float(one.dispatcher.bad_requests)) for n, one in listeners.items()]
    yield Metric("mq_bad_requests_total", Kind.counter, "Malformed frames.", names, bad)
    away = [((n,), float(one.turned_away)) for n, one in listeners.items()]
    doc = "Connections refused because maxConnections were open."
    yield Metric("mq_connections_refused_total", Kind.counter, doc, names, away)
    yield from _of_memory(next(iter(listeners.values())).memory)
    yield _by_request(
        "mq_slow_requests_total",
        "Requests that took longer than slowRequestMillis.",
        (one.dispatcher.slow_requests for one in listeners.values()),
    )
    refused: Counter[tuple[str, str]] = Counter()
    for one in listeners.values():
        for (code, cause), count in one.dispatcher.refusals.items():
            refused[_request_name(code), cause] += count
    yield Metric(
        "mq_refused_requests_total",
        Kind.counter,
        "Requests refused, by cause.",
        ("request", "cause"),
        [(labels, float(count)) for labels, count in sorted(refused.items())],
    )


def of_tasks(tasks: Tasks) -> Metric:
    """The errors of background tasks."""
    values = [((name,), float(one.count)) for name, one in sorted(tasks.failures.items())]
    doc = "Errors in background tasks, each of which was restarted."
    return Metric("mq_task_failures_total", Kind.counter, doc, ("task",), values)


def _of_memory(memory: MemoryBudget) -> Iterator[Metric]:
    """The memory budget that all listeners of a daemon share."""
    doc = "Bytes of memory held on behalf of clients."
    yield gauge("mq_client_memory_bytes", doc, memory.size())
    doc = "The limit of that memory, clientMemoryMaxBytes."
    yield gauge("mq_client_memory_max_bytes", doc, memory.in_all)
    yield Metric(
        "mq_connections_evicted_total",
        Kind.counter,
        "Connections closed because they used too much memory.",
        ("cause",),
        [((name,), float(memory.evicted[name])) for name in (CLIENTS_SETTING, CONNECTION_SETTING)],
    )


def _by_request(name: str, doc: str, counts: Iterable[Counter[int]]) -> Metric:
    found: Counter[str] = Counter()
    for counted in counts:
        for code, count in counted.items():
            found[_request_name(code)] += count
    values = [((request,), float(count)) for request, count in sorted(found.items())]
    return Metric(name, Kind.counter, doc, ("request",), values)


def _request_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


class LoopDelay:
    """The delay of the event loop: the longest wait of a request for those before it."""

    def __init__(self) -> None:
        self._worst = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            self._worst = max(self._worst, loop.time() - due)

    def metric(self) -> Metric:
        """The longest delay since the last call."""
        worst, self._worst = self._worst, 0.0
        doc = "Longest delay of the event loop since the metrics were last read."
        return gauge("mq_loop_delay_seconds", doc, worst)
