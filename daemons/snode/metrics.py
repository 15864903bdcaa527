"""Metrics of a snode: those of the snode branch, under its names, and those of all daemons here."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mq.daemons.metrics import Kind, Metric, counter, gauge, of_listeners, of_tasks

if TYPE_CHECKING:
    from mq.daemons.snode.app import Snode


def metrics_of(snode: "Snode") -> Iterator[Metric]:
    """All of them."""
    yield from of_listeners(snode.listeners())
    yield of_tasks(snode.tasks)
    yield from _of_the_branch(snode)
    forwarding, offsets = snode.forwarding, snode.offsets
    yield gauge("mq_snode_enodes", "Brokers that have a master.", len(snode.enodes.masters))
    yield gauge(
        "mq_snode_name_servers_missing",
        "Name servers that have not taken the last registration.",
        len(snode.registration.unregistered()),
    )
    doc = "Requests of clients that brokers have not answered yet."
    yield gauge("mq_snode_requests_in_flight", doc, forwarding.in_flight)
    doc = "Offsets kept for consumers."
    yield gauge("mq_snode_offsets", doc, len(offsets))
    yield gauge("mq_snode_offsets_unsent", "Of these, those that no broker has.", offsets.unsent)
    yield gauge("mq_snode_consumer_groups", "Groups with consumers.", len(snode.consumers.groups))
    yield gauge("mq_snode_push_sessions", "Consumers that are pushed to.", len(snode.sessions))
    yield Metric(
        "mq_snode_push_total",
        Kind.counter,
        "Messages for sessions, by what became of them.",
        ("outcome",),
        [((name,), float(count)) for name, count in sorted(snode.push.counts.items())],
    )
    yield counter(
        "mq_snode_interceptor_failures_total",
        "Errors of interceptors behind requests.",
        sum(sum(group.failures.values()) for group in snode.interceptors),
    )


def _of_the_branch(snode: "Snode") -> Iterator[Metric]:
    forwarding = snode.forwarding
    code = ("requestCode",)
    counts, failed = forwarding.latencies.counts, forwarding.failures
    total = {one: counts[one] + failed[one] for one in {*counts, *failed}}
    yield Metric(
        "request_total",
        Kind.counter,
        "Requests that were forwarded.",
        code,
        [((str(int(one)),), float(count)) for one, count in sorted(total.items())],
    )
    yield Metric(
        "request_failed_total",
        Kind.counter,
        "Of these, those that no broker has answered.",
        code,
        [((str(int(one)),), float(count)) for one, count in sorted(failed.items())],
    )
    yield Metric(
        "requests_latency_seconds",
        Kind.gauge,
        "How long brokers take to answer: quantiles of the last 2048 answers.",
        ("requestCode", "quantile"),
        [
            ((str(int(one)), str(quantile)), seconds)
            for one, quantile, seconds in forwarding.latencies.quantiles()
        ],
    )
    yield Metric(
        "sent_topic_size_bytes",
        Kind.counter,
        "Bytes of bodies that were sent, by topic.",
        ("topic",),
        [((topic,), float(size)) for topic, size in sorted(snode.sends.sizes.bytes.items())],
    )
