"""Metrics of the store."""

from collections.abc import Iterator

from mq.client.machine import files
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.metrics.pacing import Values, paced
from mq.daemons.broker.store.message_store import SLAVE_CAUSE, MessageStore
from mq.daemons.metrics import Kind, Metric, counter, gauge


def set_aside(aside: Quarantine) -> Metric:
    """Entries in quarantine."""
    values: Values = [((service,), float(n)) for service, n in sorted(aside.counts.items())]
    doc = "Messages and records that a background service could not process."
    return Metric("mq_set_aside_total", Kind.counter, doc, ("service",), values)


def storage(store: MessageStore) -> Iterator[Metric | None]:
    """The queues, the log, its flushes, and the disk."""
    flusher = store.flusher
    lengths: dict[str, int] = {}
    for pause, queue in paced(store.queues):
        if pause:
            yield None
        lengths[queue.topic] = lengths.get(queue.topic, 0) + queue.readable - queue.minimum
    yield Metric(
        "mq_topic_messages",
        Kind.gauge,
        "Messages in the queues of a topic.",
        ("topic",),
        [((topic,), float(length)) for topic, length in sorted(lengths.items())],
    )
    times = store.put_times
    yield Metric(
        "mq_put_seconds",
        Kind.summary,
        "Time to store and acknowledge a message over the last minute, by quantile.",
        ("quantile",),
        [((share,), times.percentile(float(share)) / 1000) for share in ("0.5", "0.99", "0.999")],
    )
    yield counter("mq_flushes_total", "Flushes of the commit log.", flusher.flushes)
    yield counter(
        "mq_flush_seconds_total", "Time spent flushing the commit log.", flusher.total_seconds
    )
    yield gauge("mq_flush_last_seconds", "Duration of the last flush.", flusher.last_seconds)
    yield gauge("mq_sends_waiting", "Sends waiting for a flush.", flusher.waiting_replies)
    yield counter(
        "mq_failed_writes_total", "Failed writes to the commit log.", store.appender.failed_writes
    )
    doc = "Reads of the commit log that the disk refused."
    yield counter("mq_failed_reads_total", doc, store.log.failures.count)
    refused = store.appender.causes - {SLAVE_CAUSE}
    yield gauge("mq_sends_refused", "1 while all sends are refused, else 0.", float(bool(refused)))
    disk = files.space(store.root)
    yield gauge("mq_disk_free_bytes", "Free space on the store's disk.", disk.free)
    yield gauge("mq_disk_total_bytes", "Size of the store's disk.", disk.total)
