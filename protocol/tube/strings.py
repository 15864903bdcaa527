"""The strings within messages: brokers, partitions, subscriptions, topics.

`#` separates segments, `:` attributes, `@` an id and its group, `,` elements. Each class parses one
kind (``parse``, which raises MalformedText) and formats it (``str``); the two are inverse.
"""

from mq.protocol.tube.brokers import (
    Address,
    BrokerClientId,
    BrokerInfo,
    Partition,
    PartitionFailure,
    PartitionKey,
    RequiredPartitions,
    SubscribeInfo,
    brokers_by_id,
    parse_addresses,
)
from mq.protocol.tube.topics import (
    ProducerTopic,
    TopicBroker,
    TopicCondition,
    TopicInfo,
    TopicMeta,
    TopicMetaBroker,
    TopicPartitions,
)

__all__ = [
    "Address",
    "BrokerClientId",
    "BrokerInfo",
    "Partition",
    "PartitionFailure",
    "PartitionKey",
    "ProducerTopic",
    "RequiredPartitions",
    "SubscribeInfo",
    "TopicBroker",
    "TopicCondition",
    "TopicInfo",
    "TopicMeta",
    "TopicMetaBroker",
    "TopicPartitions",
    "brokers_by_id",
    "parse_addresses",
]
