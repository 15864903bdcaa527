"""Metrics of stored and read messages, and of the values in brokerStatus."""

from collections.abc import Iterable, Iterator, Mapping

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.metrics.pacing import Values, broker_labels, paced
from mq.daemons.broker.statistics.stat_items import StatItems, totals_with_pauses
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.queues import Queues
from mq.daemons.broker.store.retention import used_ratio
from mq.daemons.metrics import Kind, Metric, counter, gauge
from mq.protocol.versions import CURRENT_VERSION, version_name

Counted = Mapping[tuple[str, str], tuple[int, int]]


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
