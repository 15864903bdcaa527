"""Metrics of groups: offsets, lag and members."""

from collections.abc import Iterator, Mapping

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.clients.registry import Consumers, Producers
from mq.daemons.broker.metrics.pacing import Values, broker_labels, paced
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.metrics import Kind, Metric
from mq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, retry_topic


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
