"""Frames, messages, rules and strings that tests of TubeMQ's protocol change."""

import json

from mq.protocol.tube.strings import (
    Address,
    BrokerClientId,
    BrokerInfo,
    Partition,
    PartitionFailure,
    PartitionKey,
    ProducerTopic,
    RequiredPartitions,
    SubscribeInfo,
    TopicBroker,
    TopicCondition,
    TopicInfo,
    TopicMeta,
    TopicMetaBroker,
    TopicPartitions,
)

# The example of the specification: serial 7, a request of 22 bytes.
PAYLOAD = bytes.fromhex("02 0800 04 08011002 0d 0806 109c4a 1a06 0a0163120167")
FRAME = bytes.fromhex("ff7ff4fe 00000007 00000001 00000016") + PAYLOAD
LIMIT = {"start": "08:00", "end": "12:30", "dltInM": 1024, "limitInM": 20, "freqInMs": 1000}
POLLS = {"zeroCnt": 3, "freqInMs": 300}
LOW = {"normFreqInMs": 0, "filterFreqInMs": 100, "minDataFilterFreqInMs": 400}
BROKER = BrokerInfo(1, "10.0.0.1", 8123)
PARTITION = Partition(BROKER, "test", 10003)
KEY = PartitionKey(1, "test", 10003)
EXAMPLES = [
    ("10.0.0.1:8715", Address("10.0.0.1", 8715)),
    ("[2001:db8::1]:8715", Address("2001:db8::1", 8715)),
    ("1:10.0.0.1:8123", BROKER),
    ("1:test:10003", KEY),
    ("1:10.0.0.1:8123#test:10003", PARTITION),
    ("411:1:10.0.0.1:8123#test:10003", PartitionFailure(411, PARTITION)),
    ("c_1@g#1:10.0.0.1:8123#test:10003", SubscribeInfo("c_1", "g", PARTITION)),
    ("test#a,b", TopicCondition("test", ("a", "b"))),
    (
        "1:test:10003=28,2:test:0=0",
        RequiredPartitions(((KEY, 28), (PartitionKey(2, "test", 0), 0))),
    ),
    (
        "test#1:3:2,2:1:1#2097152",
        ProducerTopic("test", (TopicBroker(1, 3, 2), TopicBroker(2, 1, 1)), 2097152),
    ),
    ("test#1:3:2", ProducerTopic("test", (TopicBroker(1, 3, 2),))),
    ("1:10.0.0.1:8123#test:3:true:false:2", TopicInfo(BROKER, "test", 3, True, False, 2)),
    (
        "test#1:2:3:1,2:1:1:0",
        TopicMeta("test", (TopicMetaBroker(1, 2, 3, True), TopicMetaBroker(2, 1, 1, False))),
    ),
    ("test#1:10003,2:0", TopicPartitions("test", ((1, 10003), (2, 0)))),
    ("1:10.0.0.1:8123:1.7.0", BrokerClientId(BROKER, "1.7.0")),
]


def rules(kind: object, *items: object) -> str:
    return json.dumps([{"type": kind, "rule": list(items)}])
