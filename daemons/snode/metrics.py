"""Metrics of a snode: those of the snode branch, under its names, and those of all daemons."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from mq.daemons.broker.clients.registry import Consumers
from mq.daemons.listener import Listener
from mq.daemons.metrics import Kind, Metric, counter, gauge, of_listeners, of_tasks
from mq.daemons.snode.enodes import Enodes
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.handlers.sends import SendHandlers
from mq.daemons.snode.interceptors import InterceptorGroup
from mq.daemons.snode.offsets import OffsetCache
from mq.daemons.snode.push.service import PushService
from mq.daemons.snode.push.sessions import PushSessions
from mq.daemons.snode.registration import Registration
from mq.daemons.supervision import Tasks


class Parts(Protocol):
    """The components of a snode."""

    tasks: Tasks
    enodes: Enodes
    forwarding: Forwarding
    consumers: Consumers
    sessions: PushSessions
    offsets: OffsetCache
    push: PushService
    sends: SendHandlers
    registration: Registration

    @property
    def interceptors(self) -> tuple[InterceptorGroup, InterceptorGroup, InterceptorGroup]: ...

    def listeners(self) -> Mapping[str, Listener]: ...


def metrics_of(snode: Parts) -> Iterator[Metric]:
    """All metrics."""
    yield from of_listeners(snode.listeners())
    yield of_tasks(snode.tasks)
    yield from _of_the_branch(snode)
    forwarding, offsets = snode.forwarding, snode.offsets
    yield gauge("mq_snode_enodes", "Brokers that have a master.", len(snode.enodes.masters))
    yield gauge(
        "mq_snode_name_servers_missing",
        "Name servers that have not confirmed the last registration.",
        len(snode.registration.unregistered()),
    )
    doc = "Requests that brokers have not answered yet."
    yield gauge("mq_snode_requests_in_flight", doc, forwarding.in_flight)
    doc = "Offsets kept for consumers."
    yield gauge("mq_snode_offsets", doc, len(offsets))
    yield gauge("mq_snode_offsets_unsent", "Offsets not sent to a broker yet.", offsets.unsent)
    yield gauge(
        "mq_snode_consumer_groups",
        "Consumer groups that have members.",
        len(snode.consumers.groups),
    )
    yield gauge(
        "mq_snode_push_sessions", "Consumers that receive pushed messages.", len(snode.sessions)
    )
    yield Metric(
        "mq_snode_push_total",
        Kind.counter,
        "Messages to push, by outcome.",
        ("outcome",),
        [((name,), float(count)) for name, count in sorted(snode.push.counts.items())],
    )
    yield counter(
        "mq_snode_interceptor_failures_total",
        "Errors in interceptors that run after a request.",
        sum(sum(group.failures.values()) for group in snode.interceptors),
    )


# The snode branch's metrics, with its names and with mq's.
_REQUESTS = ("request_total", "mq_snode_requests_total")
_FAILED = ("request_failed_total", "mq_snode_requests_failed_total")
_LATENCY = ("requests_latency_seconds", "mq_snode_request_seconds")
_SENT = ("sent_topic_size_bytes", "mq_snode_sent_bytes_total")


def _of_the_branch(snode: Parts) -> Iterator[Metric]:
    forwarding = snode.forwarding
    code = ("requestCode",)
    counts, failed = forwarding.latencies.counts, forwarding.failures
    total = {one: counts[one] + failed[one] for one in {*counts, *failed}}
    requests = [((str(int(one)),), float(count)) for one, count in sorted(total.items())]
    failures = [((str(int(one)),), float(count)) for one, count in sorted(failed.items())]
    latencies = [
        ((str(int(one)), str(quantile)), seconds)
        for one, quantile, seconds in forwarding.latencies.quantiles()
    ]
    sent = [((topic,), float(size)) for topic, size in sorted(snode.sends.sizes.bytes.items())]
    for name in _REQUESTS:
        yield Metric(name, Kind.counter, "Requests that were forwarded.", code, requests)
    for name in _FAILED:
        doc = "Requests that no broker answered."
        yield Metric(name, Kind.counter, doc, code, failures)
    for name in _LATENCY:
        doc = "Response time of brokers: quantiles of the last 2048 replies."
        yield Metric(name, Kind.summary, doc, (*code, "quantile"), latencies)
    for name in _SENT:
        doc = "Bytes of bodies that were sent and stored, by topic."
        yield Metric(name, Kind.counter, doc, ("topic",), sent)
