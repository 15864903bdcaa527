"""Metrics: what a broker tells of itself to monitoring.

Those with a name that begins with rocketmq_ are what RocketMQ's exporter shows of a broker
(RMQMetricsCollector of apache/rocketmq-exporter), so that its dashboards go on working; those that
begin with mq_ are ours. docs/operations.md lists both.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mq.client.machine import files
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.parts import Clients, Stats, Stores
from mq.daemons.broker.stat_items import A_STEP, totals_with_pauses
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.retention import used_ratio
from mq.daemons.listener import Listener
from mq.daemons.metrics import Kind, Metric, counter, gauge, of_listeners, of_tasks
from mq.daemons.supervision import Tasks
from mq.protocol.codes import CURRENT_VERSION, version_name
from mq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, retry_topic

T = TypeVar("T")
Counted = Mapping[tuple[str, str], tuple[int, int]]
Values = list[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class BrokerMetrics:
    """What a broker's metrics are taken from; ``address`` is its own, host:port."""

    settings: BrokerSettings
    address: str
    listeners: Mapping[str, Listener]  # by name; the main one comes first
    tasks: Tasks
    stores: Stores
    clients: Clients
    stats: Stats

    def all(self) -> Iterator[Metric]:
        return (metric for metric in self.with_pauses() if metric is not None)

    def with_pauses(self) -> Iterator[Metric | None]:
        """All of them; at each None anything else may happen. A broker has a figure for each topic
        and group, and others wait while it puts them together."""
        yield from of_listeners(self.listeners)
        yield of_tasks(self.tasks)
        yield _set_aside(self)
        counted = yield from totals_with_pauses(
            self.stores.messages.queues, self.stats.counters, lambda: self.settings.broker
        )
        yield from _rates(self, counted)
        yield from _offsets(self)
        yield from _runtime(self)
        yield from _counted(counted)
        yield from _store(self)


def _paced(items: Iterable[T]) -> Iterator[tuple[bool, T]]:
    """Each with whether it is time for a pause; what comes and goes meanwhile does not matter."""
    for number, item in enumerate(list(items), 1):
        yield number % A_STEP == 0, item


def _set_aside(of: BrokerMetrics) -> Metric:
    values: Values = [
        ((service,), float(n)) for service, n in sorted(of.stores.aside.counts.items())
    ]
    doc = "Messages and records that a background service could not process."
    return Metric("mq_set_aside_total", Kind.counter, doc, ("service",), values)


def _whose(of: BrokerMetrics) -> dict[str, str]:
    config = of.settings.broker
    return {"cluster": config.broker_cluster_name, "broker": config.broker_name}


def _host(of: BrokerMetrics) -> dict[str, str]:
    config = of.settings.broker
    return {
        "cluster": config.broker_cluster_name,
        "brokerIP": config.broker_ip1,
        "broker": config.broker_name,
    }


def _rates(of: BrokerMetrics, counted: Counted) -> Iterator[Metric | None]:
    """Growth a second over the last minute, of what BrokerStatsManager counts."""
    whose = _whose(of)
    topics, groups = ("topic",), ("topic", "group")
    for name, item, labels, doc in (
        ("rocketmq_producer_tps", "TOPIC_PUT_NUMS", topics, "Messages stored per second."),
        ("rocketmq_producer_message_size", "TOPIC_PUT_SIZE", topics, "Bytes stored per second."),
        ("rocketmq_consumer_tps", "GROUP_GET_NUMS", groups, "Messages read per second."),
        ("rocketmq_consumer_message_size", "GROUP_GET_SIZE", groups, "Bytes read per second."),
        ("rocketmq_send_back_nums", "SNDBCK_PUT_NUMS", groups, "Messages sent back per second."),
    ):
        values: Values = []
        for pause, (kind, key) in _paced(counted):
            if pause:
                yield None
            if kind == item:
                rate = of.stats.items.minute_rate(item, key)
                values.append((tuple(key.split("@", 1)) if labels is groups else (key,), rate))
        yield Metric(name, Kind.gauge, doc, labels, values, whose)
    for name, counter_name, doc in (
        ("rocketmq_broker_tps", "puts", "Messages stored per second, over 10 s."),
        ("rocketmq_broker_qps", "transferred", "Messages read per second, over 10 s."),
    ):
        rate = float(of.stats.counters.rates(counter_name).split()[0])
        yield Metric(name, Kind.gauge, doc, (), [((), rate)], _host(of))


def _offsets(of: BrokerMetrics) -> Iterator[Metric | None]:
    """Ends of topics, offsets of groups, and what lies between them."""
    ends: dict[str, int] = {}
    for pause, queue in _paced(of.stores.messages.queues):
        if pause:
            yield None
        ends[queue.topic] = ends.get(queue.topic, 0) + queue.readable
    plain: Values = []
    retry: Values = []
    dead: Values = []
    for pause, (topic, end) in _paced(sorted(ends.items())):
        if pause:
            yield None
        if topic.startswith(RETRY_PREFIX):
            retry.append(((topic,), end))
        elif topic.startswith(DEAD_LETTER_PREFIX):
            dead.append(((topic.removeprefix(DEAD_LETTER_PREFIX),), end))
        else:
            plain.append(((topic,), end))
    whose = _whose(of)
    for name, labels, values, doc in (
        ("rocketmq_producer_offset", ("topic",), plain, "Sum of a topic's max offsets."),
        ("rocketmq_topic_retry_offset", ("topic",), retry, "Sum of a retry topic's max offsets."),
        (
            "rocketmq_topic_dlq_offset",
            ("group",),
            dead,
            "Sum of a dead letter topic's max offsets.",
        ),
    ):
        yield Metric(name, Kind.gauge, doc, labels, values, whose)
    yield from _of_groups(of, ends)


def _of_groups(of: BrokerMetrics, ends: dict[str, int]) -> Iterator[Metric | None]:
    offsets: Values = []
    behind: Values = []
    behind_retry: Values = []
    for pause, (key, queues) in _paced(of.stores.offsets.table.items()):
        if pause:
            yield None
        topic, _, group = key.partition("@")
        offsets.append(((topic, group), sum(queues.values())))
        difference = sum(
            max(0, of.stores.messages.max_offset(topic, queue_id) - offset)
            for queue_id, offset in queues.items()
        )
        members = of.clients.consumers.groups.get(group)
        model = "" if members is None or members.message_model is None else members.message_model
        labels = (group, topic, str(0 if members is None else len(members.clients)), str(model))
        is_retry = topic == retry_topic(group)
        (behind_retry if is_retry else behind).append((labels, difference))
    yield Metric(
        "rocketmq_consumer_offset",
        Kind.gauge,
        "Sum of a group's committed offsets in a topic.",
        ("topic", "group"),
        offsets,
        _whose(of),
    )
    labels = ("group", "topic", "countOfOnlineConsumers", "msgModel")
    doc = "Messages that a group has not consumed yet."
    yield Metric("rocketmq_group_diff", Kind.gauge, doc, labels, behind)
    yield Metric("rocketmq_group_retrydiff", Kind.gauge, doc, labels, behind_retry)
    dead = [
        ((group, DEAD_LETTER_PREFIX + group, "0", ""), float(ends[DEAD_LETTER_PREFIX + group]))
        for group in {key.partition("@")[2] for key in of.stores.offsets.table}
        if DEAD_LETTER_PREFIX + group in ends
    ]
    yield Metric("rocketmq_group_dlqdiff", Kind.gauge, "Dead letters of a group.", labels, dead)
    yield Metric(
        "rocketmq_producer_count",
        Kind.gauge,
        "Connected producers of a group.",
        ("group",),
        [((group,), float(len(made))) for group, made in of.clients.producers.groups.items()],
        _whose(of),
    )


def _runtime(of: BrokerMetrics) -> Iterator[Metric]:
    """What brokerStatus shows, under the exporter's names."""
    config, stats, log = of.settings.broker, of.stats.counters, of.stores.messages.log
    constant = {
        "cluster": config.broker_cluster_name,
        "brokerIP": of.address,
        "brokerHost": of.address,
        "des": version_name(CURRENT_VERSION),
        "boottime": str(int(stats.started * 1000)),
        "broker_version": str(CURRENT_VERSION),
    }
    start = "rocketmq_brokeruntime_"
    for name, counted, what in (
        ("put_tps", "puts", "Messages stored"),
        ("getfound_tps", "found", "Pulls that found messages"),
        ("getmiss_tps", "missed", "Pulls that found none"),
        ("gettransfered_tps", "transferred", "Messages read"),
    ):
        for period, rate in zip((10, 60, 600), stats.rates(counted).split(), strict=True):
            doc = f"{what} per second, over {period} s."
            yield gauge(f"{start}{name}{period}", doc, float(rate), **constant)
    earliest = log.store_timestamp(log.minimum) if log.written > log.minimum else None
    for name, value, doc in (
        ("putmessage_times_total", stats.puts, "Messages stored since the start."),
        ("put_message_size_total", stats.put_bytes, "Bytes of messages stored since the start."),
        ("commitlog_minoffset", log.minimum, "Min offset of the commit log."),
        ("commitlog_maxoffset", log.written, "Max offset of the commit log."),
        (
            "remain_howmanydata_toflush",
            log.written - log.flushed,
            "Bytes not flushed to the disk yet.",
        ),
        ("dispatch_behind_bytes", 0, "Bytes not in the consume queues yet: always 0."),
        (
            "earliest_message_timestamp",
            earliest or -1,
            "Store timestamp of the oldest message, ms.",
        ),
        (
            "commitlog_disk_ratio",
            of.stores.messages.retention.commit_log_ratio() / 100,
            "Share of the commit log's disk in use.",
        ),
        (
            "consumequeue_disk_ratio",
            used_ratio(layout.consume_queue_path(of.stores.messages.root)) / 100,
            "Share of the consume queues' disk in use.",
        ),
    ):
        yield gauge(start + name, doc, value, **constant)


def _counted(counted: Counted) -> Iterator[Metric | None]:
    """Counters by topic, and by topic and group."""
    topics, groups = ("topic",), ("topic", "group")
    for name, item, labels, doc in (
        ("mq_messages_put_total", "TOPIC_PUT_NUMS", topics, "Messages stored."),
        ("mq_bytes_put_total", "TOPIC_PUT_SIZE", topics, "Bytes stored."),
        ("mq_messages_got_total", "GROUP_GET_NUMS", groups, "Messages read."),
        ("mq_bytes_got_total", "GROUP_GET_SIZE", groups, "Bytes read."),
        ("mq_messages_sent_back_total", "SNDBCK_PUT_NUMS", groups, "Messages sent back."),
    ):
        values: Values = []
        for pause, ((kind, key), (total, _)) in _paced(counted.items()):
            if pause:
                yield None
            if kind == item:
                values.append((tuple(key.split("@", 1)) if labels is groups else (key,), total))
        yield Metric(name, Kind.counter, doc, labels, values)


def _store(of: BrokerMetrics) -> Iterator[Metric | None]:
    store, flusher = of.stores.messages, of.stores.messages.flusher
    lengths: dict[str, int] = {}
    for pause, queue in _paced(store.queues):
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
    held = sum(
        len(c.attributes.get("held", ())) for c in next(iter(of.listeners.values())).channels
    )
    yield gauge("mq_held_pulls", "Pulls waiting for a message.", held)
    times = store.put_times
    yield Metric(
        "mq_put_seconds",
        Kind.gauge,
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
    refused = store.appender.refusal is not None
    yield gauge("mq_sends_refused", "1 while all sends are refused, else 0.", float(refused))
    disk = files.space(store.root)
    yield gauge("mq_disk_free_bytes", "Free space on the store's disk.", disk.free)
    yield gauge("mq_disk_total_bytes", "Size of the store's disk.", disk.total)
