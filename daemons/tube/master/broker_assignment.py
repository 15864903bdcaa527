"""The configured settings of a broker, as texts for it."""

from typing import TypeVar

from mq.daemons.tube.master.broker_run import Assignment
from mq.daemons.tube.master.catalog import Catalog
from mq.daemons.tube.master.records import BrokerConf, Props, TopicDeploy
from mq.protocol.tube.codes import UNDEFINED
from mq.protocol.tube.names import MIB
from mq.protocol.tube.settings import BrokerDefaults, TopicSettings

T = TypeVar("T")


def wanted(catalog: Catalog, broker_id: int) -> Assignment | None:
    """Return the settings of a broker except topics to remove; None if it is not set up."""
    broker = catalog.broker(broker_id)
    if broker is None:
        return None
    topics = sorted(
        str(_topic(catalog, broker, one))
        for one in catalog.of_broker(broker_id)
        if not one.status.is_removed
    )
    return Assignment(broker.status, str(_defaults(broker.props)), tuple(topics))


def removed(catalog: Catalog, broker_id: int) -> list[str]:
    """Return the settings of topics that a broker must remove."""
    broker = catalog.broker(broker_id)
    if broker is None:
        return []
    return [
        str(_topic(catalog, broker, one))
        for one in catalog.of_broker(broker_id)
        if one.status.is_removed
    ]


def _defaults(props: Props) -> BrokerDefaults:
    return BrokerDefaults(
        partitions=props.num_partitions,
        accept_publish=props.accept_publish,
        accept_subscribe=props.accept_subscribe,
        flush_messages=props.unflush_threshold,
        flush_interval_ms=props.unflush_interval,
        delete_policy=props.delete_policy,
        stores=props.num_topic_stores,
        flush_bytes=props.unflush_data_hold,
        cache_size=props.mem_cache_msg_size_in_mb,
        cache_messages=props.mem_cache_msg_cnt_in_k,
        cache_flush_interval_ms=props.mem_cache_flush_intvl,
    )


def _topic(catalog: Catalog, broker: BrokerConf, one: TopicDeploy) -> TopicSettings:
    """Return the differences from the broker's defaults
    (DefaultMetaDataService.inGetTopicConfStrInfo).
    """
    own, usual = one.props, broker.props

    control = catalog.topic_control(one.topic)
    size = UNDEFINED if control is None else control.max_msg_size_in_mb
    if size in (UNDEFINED, catalog.cluster.max_msg_size_in_mb):
        size = 0
    return TopicSettings(
        one.topic,
        partitions=_unless(own.num_partitions, usual.num_partitions),
        accept_publish=_unless(own.accept_publish, usual.accept_publish),
        accept_subscribe=_unless(own.accept_subscribe, usual.accept_subscribe),
        flush_messages=_unless(own.unflush_threshold, usual.unflush_threshold),
        flush_interval_ms=_unless(own.unflush_interval, usual.unflush_interval),
        delete_policy=_unless(own.delete_policy, usual.delete_policy),
        stores=_unless(own.num_topic_stores, usual.num_topic_stores),
        status=int(one.status),
        flush_bytes=_unless(own.unflush_data_hold, usual.unflush_data_hold),
        cache_size=_unless(own.mem_cache_msg_size_in_mb, usual.mem_cache_msg_size_in_mb),
        cache_messages=_unless(own.mem_cache_msg_cnt_in_k, usual.mem_cache_msg_cnt_in_k),
        cache_flush_interval_ms=_unless(own.mem_cache_flush_intvl, usual.mem_cache_flush_intvl),
        max_message_size=size * MIB if size else None,
    )


def _unless(value: T, usual: T) -> T | None:
    return None if value == usual else value
