"""The metrics of a broker.

Names with the prefix rocketmq_ are those of RocketMQ's exporter (RMQMetricsCollector of
apache/rocketmq-exporter), so that its dashboards work; names with mq_ are specific to this broker.
docs/operations.md lists both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mq.client.machine import files
from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.clients.registry import Consumers, Producers
from mq.daemons.broker.component import Component
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.metrics.pacing import Values, broker_labels, paced
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.statistics.stat_items import StatItems, totals_with_pauses
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store import SLAVE_CAUSE, MessageStore, Queues, layout, used_ratio
from mq.daemons.listener import Listener
from mq.daemons.metrics import Kind, Metric, counter, gauge, of_listeners, of_tasks
from mq.daemons.supervision import Tasks
from mq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, retry_topic
from mq.protocol.versions import CURRENT_VERSION, version_name

Counted = Mapping[tuple[str, str], tuple[int, int]]


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


def traffic(
    settings: BrokerSettings, queues: Queues, stats: BrokerStats, items: StatItems
) -> Iterator[Metric | None]:
    """Stored and read messages, by topic and group."""
    counted = yield from totals_with_pauses(queues, stats, settings)
    yield from _rates(settings.broker, stats, items, counted)
    yield from _counted(counted)


def _rates(
    config: BrokerConfig, stats: BrokerStats, items: StatItems, counted: Counted
) -> Iterator[Metric | None]:
    """Rates per second over the last minute, of the counters of BrokerStatsManager."""
    constant = broker_labels(config)
    topics, groups = ("topic",), ("topic", "group")
    for name, item, labels, doc in (
        ("rocketmq_producer_tps", "TOPIC_PUT_NUMS", topics, "Messages stored per second."),
        ("rocketmq_producer_message_size", "TOPIC_PUT_SIZE", topics, "Bytes stored per second."),
        ("rocketmq_consumer_tps", "GROUP_GET_NUMS", groups, "Messages read per second."),
        ("rocketmq_consumer_message_size", "GROUP_GET_SIZE", groups, "Bytes read per second."),
        ("rocketmq_send_back_nums", "SNDBCK_PUT_NUMS", groups, "Messages sent back per second."),
    ):
        values: Values = []
        for pause, (kind, key) in paced(counted):
            if pause:
                yield None
            if kind == item:
                rate = items.minute_rate(item, key)
                values.append((tuple(key.split("@", 1)) if labels is groups else (key,), rate))
        yield Metric(name, Kind.gauge, doc, labels, values, constant)
    for name, counter_name, doc in (
        ("rocketmq_broker_tps", "puts", "Messages stored per second, over 10 s."),
        ("rocketmq_broker_qps", "transferred", "Messages read per second, over 10 s."),
    ):
        rate = float(stats.rates(counter_name).split()[0])
        yield Metric(name, Kind.gauge, doc, (), [((), rate)], _host(config))


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
        for pause, ((kind, key), (total, _)) in paced(counted.items()):
            if pause:
                yield None
            if kind == item:
                values.append((tuple(key.split("@", 1)) if labels is groups else (key,), total))
        yield Metric(name, Kind.counter, doc, labels, values)


def _host(config: BrokerConfig) -> dict[str, str]:
    return {
        "cluster": config.broker_cluster_name,
        "brokerIP": config.broker_ip1,
        "broker": config.broker_name,
    }


def runtime(
    settings: BrokerSettings, address: str, stats: BrokerStats, store: MessageStore
) -> Iterator[Metric]:
    """The values of brokerStatus, under the exporter's names."""
    config = settings.broker
    constant = {
        "cluster": config.broker_cluster_name,
        "brokerIP": address,
        "brokerHost": address,
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
    for name, value, doc in _sizes(stats, store):
        kind = counter if name.endswith("_total") else gauge
        yield kind(start + name, doc, value, **constant)


def _sizes(stats: BrokerStats, store: MessageStore) -> Iterable[tuple[str, float, str]]:
    log = store.log
    earliest = log.readable_timestamp(log.minimum) if log.written > log.minimum else None
    return (
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
            store.retention.commit_log_ratio() / 100,
            "Share of the commit log's disk in use.",
        ),
        (
            "consumequeue_disk_ratio",
            used_ratio(layout.consume_queue_path(store.root)) / 100,
            "Share of the consume queues' disk in use.",
        ),
    )


def progress(
    config: BrokerConfig,
    store: MessageStore,
    offsets: ConsumerOffsets,
    consumers: Consumers,
    producers: Producers,
) -> Iterator[Metric | None]:
    """The ends of topics, the offsets of groups, and the difference."""
    ends: dict[str, int] = {}
    for pause, queue in paced(store.queues):
        if pause:
            yield None
        ends[queue.topic] = ends.get(queue.topic, 0) + queue.readable
    plain: Values = []
    retry: Values = []
    dead: Values = []
    for pause, (topic, end) in paced(sorted(ends.items())):
        if pause:
            yield None
        if topic.startswith(RETRY_PREFIX):
            retry.append(((topic,), end))
        elif topic.startswith(DEAD_LETTER_PREFIX):
            dead.append(((topic.removeprefix(DEAD_LETTER_PREFIX),), end))
        else:
            plain.append(((topic,), end))
    constant = broker_labels(config)
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
        yield Metric(name, Kind.gauge, doc, labels, values, constant)
    yield from _of_groups(config, store, offsets, consumers, ends)
    yield Metric(
        "rocketmq_producer_count",
        Kind.gauge,
        "Connected producers of a group.",
        ("group",),
        [((group,), float(len(made))) for group, made in producers.groups.items()],
        constant,
    )


def _of_groups(
    config: BrokerConfig,
    store: MessageStore,
    committed: ConsumerOffsets,
    consumers: Consumers,
    ends: Mapping[str, int],
) -> Iterator[Metric | None]:
    offsets: Values = []
    lag: Values = []
    retry_lag: Values = []
    for pause, (key, queues) in paced(committed.table.items()):
        if pause:
            yield None
        topic, _, group = key.partition("@")
        offsets.append(((topic, group), sum(queues.values())))
        difference = sum(
            max(0, store.max_offset(topic, queue_id) - offset)
            for queue_id, offset in queues.items()
        )
        members = consumers.groups.get(group)
        model = "" if members is None or members.message_model is None else members.message_model
        labels = (group, topic, str(0 if members is None else len(members.clients)), str(model))
        is_retry = topic == retry_topic(group)
        (retry_lag if is_retry else lag).append((labels, difference))
    yield Metric(
        "rocketmq_consumer_offset",
        Kind.gauge,
        "Sum of a group's committed offsets in a topic.",
        ("topic", "group"),
        offsets,
        broker_labels(config),
    )
    labels = ("group", "topic", "countOfOnlineConsumers", "msgModel")
    doc = "Messages that a group has not consumed yet."
    yield Metric("rocketmq_group_diff", Kind.gauge, doc, labels, lag)
    yield Metric("rocketmq_group_retrydiff", Kind.gauge, doc, labels, retry_lag)
    dead = [
        ((group, DEAD_LETTER_PREFIX + group, "0", ""), float(ends[DEAD_LETTER_PREFIX + group]))
        for group in {key.partition("@")[2] for key in committed.table}
        if DEAD_LETTER_PREFIX + group in ends
    ]
    yield Metric("rocketmq_group_dlqdiff", Kind.gauge, "Dead letters of a group.", labels, dead)


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
