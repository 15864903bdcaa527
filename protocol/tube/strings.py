"""The strings within messages: brokers, partitions, subscriptions, topics.

`#` parts segments, `:` attributes, `@` an id and its group, `,` elements. Each class reads one kind
(``parse``, which raises MalformedText) and writes it (``str``); what was written is read as it was.
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
