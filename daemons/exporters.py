"""Exporters of metrics: Prometheus polls them, StatsD gets them sent.

Their dependencies are imported only if one of the two is configured.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from mq.daemons.operation_config import OFF, MetricsConfig
from mq.daemons.service import CannotStart
from mq.daemons.supervision import Tasks
from mq.daemons.time_slices import TimeSlices

if TYPE_CHECKING:
    from mq.daemons.metrics import Metric

log = logging.getLogger(__name__)

# Returns the metrics; at each None other work may run.
Collect = Callable[[], Iterable["Metric | None"]]

COLLECT_TIMEOUT = 10.0  # for a busy event loop; Prometheus itself times out after 10 s
MOST_DATAGRAM = 1400  # limit in bytes, so that datagrams are not fragmented
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def are_wanted(operation: MetricsConfig) -> bool:
    """Whether an exporter is configured."""
    return operation.metrics_port != OFF or bool(operation.statsd_address)


async def start_exporters(
    operation: MetricsConfig, collect: Collect, tasks: Tasks, parts: AsyncExitStack
) -> int:
    """Start the configured exporters; returns the port for Prometheus, -1 without one.

    Raises:
        CannotStart: the port is taken, or prometheus-client is not installed.
    """
    if operation.statsd_address:
        reporter = StatsdReporter(operation.statsd_address, collect)
        seconds = operation.statsd_interval_millis / 1000
        tasks.spawn(lambda: reporter.run(seconds), "StatsD")
    if operation.metrics_port == OFF:
        return OFF
    prometheus = Prometheus(collect)
    port = prometheus.start(operation.metrics_host, operation.metrics_port)
    parts.push_async_callback(prometheus.stop)
    log.info("Prometheus: http://%s:%d/metrics", operation.metrics_host, port)
    return port


async def collected(collect: Collect) -> list["Metric"]:
    """Collect the metrics in steps, between which other work runs."""
    steps = TimeSlices()
    found = []
    for metric in collect():
        if metric is not None:
            found.append(metric)
        await steps.rest()
    return found


class Prometheus:
    """The port that Prometheus polls. Its threads request the metrics from the event loop."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._server: Any = None

    def start(self, host: str, port: int) -> int:
        """Open the port and return it. Raises CannotStart."""
        try:
            from prometheus_client import (
                CollectorRegistry,
                ProcessCollector,
                start_http_server,
            )
        except ImportError:
            raise CannotStart(
                f"metricsPort={port}: needs prometheus-client; pip install prometheus-client"
            ) from None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        try:
            self._server, _ = start_http_server(port, host, registry)
            self._server.set_app(_with_head(self._server.get_app()))
        except OSError as error:
            raise CannotStart(
                f"metricsPort={port}: cannot listen on {host}: {error.strerror}"
            ) from None
        return int(self._server.server_port)

    async def stop(self) -> None:
        """Close the port. A reader that waits for metrics gets none."""
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()

    async def _ask(self) -> list["Metric"]:
        async with self._turn:  # concurrent readers get no more of the event loop than one
            return await collected(self._collect)

    def describe(self) -> list[Any]:
        """Nothing: the metrics depend on the daemon's state."""
        return []

    def collect(self) -> Iterator[Any]:
        """The metrics in the form of prometheus_client, whose threads call this."""
        from prometheus_client import core

        future = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        for metric in future.result(COLLECT_TIMEOUT):
            family = core.Metric(metric.name.removesuffix("_total"), metric.doc, metric.kind)
            for values, number in metric.values:
                labels = dict(zip(metric.labels, values, strict=True))
                family.add_sample(metric.name, {**metric.constant, **labels}, number)
            yield family


def _with_head(application: Any) -> Any:
    """The WSGI application of prometheus_client, extended by HEAD, which it refuses."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "HEAD":
            found: Iterable[bytes] = application(environ, start_response)
            return found
        from prometheus_client import CONTENT_TYPE_LATEST

        start_response("200 OK", [("Content-Type", CONTENT_TYPE_LATEST)])
        return []

    return answer


class StatsdReporter:
    """Sends metrics to a StatsD server: gauges as they are, counters as differences."""

    def __init__(self, address: str, collect: Collect) -> None:
        self._address = address
        self._collect = collect
        self._before: dict[str, float] = {}

    async def run(self, interval: float) -> None:
        """Send until cancelled. A datagram that cannot be sent is lost, as usual with UDP."""
        import asyncio_dgram  # only if a server is configured

        host, _, port = self._address.rpartition(":")
        stream = None
        try:
            while True:
                await asyncio.sleep(interval)
                try:
                    if stream is None:
                        stream = await asyncio_dgram.connect((host.strip("[]"), int(port)))
                    for datagram in datagrams(self.lines(await collected(self._collect))):
                        await stream.send(datagram)
                except asyncio_dgram.TransportClosed:
                    stream = None
                except OSError as error:
                    log.warning(
                        "StatsD at %s: %s", self._address, error, extra={"failure": "StatsD"}
                    )
        finally:
            if stream is not None:
                stream.close()

    def lines(self, metrics: Iterable["Metric"]) -> Iterator[str]:
        """One line for each value."""
        for metric in metrics:
            for values, number in metric.values:
                name = ".".join((metric.name, *(_NOT_IN_NAMES.sub("_", v) for v in values)))
                if metric.kind != "counter":
                    yield f"{name}:{number:.12g}|g"
                    continue
                grown = number - self._before.get(name, 0.0)
                self._before[name] = number
                if grown > 0:
                    yield f"{name}:{grown:.12g}|c"


def datagrams(lines: Iterable[str]) -> Iterator[bytes]:
    """Join lines into datagrams, as many as fit."""
    joined = b""
    for line in lines:
        raw = line.encode()
        if joined and len(joined) + 1 + len(raw) > MOST_DATAGRAM:
            yield joined
            joined = b""
        joined = raw if not joined else joined + b"\n" + raw
    if joined:
        yield joined
