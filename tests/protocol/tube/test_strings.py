from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.tube.errors import MalformedText
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
    brokers_by_id,
    parse_addresses,
)
from tests.protocol.tube.examples import BROKER, EXAMPLES, KEY, PARTITION


@pytest.mark.parametrize(("text", "value"), EXAMPLES)
def test_a_string_is_read_and_written_as_it_was(text: str, value: object) -> None:
    parse: Callable[[str], object] = type(value).parse  # type: ignore[attr-defined]
    assert parse(text) == value
    assert parse(f" {text} ") == value
    assert str(value) == text


WORDS = st.from_regex(r"[a-zA-Z][\w.-]{0,10}", fullmatch=True)
INTS = st.integers(0, 2**31 - 1)
BROKERS = st.builds(BrokerInfo, INTS, WORDS, st.integers(1, 65535))
PARTITIONS = st.builds(Partition, BROKERS, WORDS, INTS)
KEYS = st.builds(PartitionKey, INTS, WORDS, INTS)
ANY = st.one_of(
    BROKERS,
    PARTITIONS,
    KEYS,
    st.builds(PartitionFailure, INTS, PARTITIONS),
    st.builds(SubscribeInfo, WORDS, WORDS, PARTITIONS),
    st.builds(
        TopicCondition,
        WORDS,
        st.sets(WORDS, min_size=1, max_size=5).map(lambda items: tuple(sorted(items))),
    ),
    st.builds(
        RequiredPartitions,
        st.dictionaries(KEYS, st.integers(0, 2**63 - 1), max_size=4).map(
            lambda d: tuple(d.items())
        ),
    ),
    st.builds(
        ProducerTopic,
        WORDS,
        st.lists(st.builds(TopicBroker, INTS, INTS, INTS), max_size=4).map(tuple),
        st.none() | INTS,
    ),
    st.builds(TopicInfo, BROKERS, WORDS, INTS, st.booleans(), st.booleans(), INTS),
    st.builds(
        TopicMeta,
        WORDS,
        st.lists(st.builds(TopicMetaBroker, INTS, INTS, INTS, st.booleans()), max_size=4).map(
            tuple
        ),
    ),
    st.builds(
        TopicPartitions, WORDS, st.lists(st.tuples(INTS, INTS), min_size=1, max_size=4).map(tuple)
    ),
    st.builds(BrokerClientId, BROKERS, WORDS),
)


@given(ANY)
def test_what_is_written_is_read(value: object) -> None:
    parse: Callable[[str], object] = type(value).parse  # type: ignore[attr-defined]
    assert parse(str(value)) == value


def test_a_broker_at_the_usual_port_has_a_short_form() -> None:
    assert BROKER.simple == "1:10.0.0.1: "
    assert BrokerInfo(1, "h", 9000).simple == "1:h:9000"
    assert BrokerInfo.parse("1:10.0.0.1: ") == BROKER
    assert BrokerInfo.parse("1:10.0.0.1: ", 8124) == BROKER.with_port(8124)
    assert brokers_by_id(["1:a: ", "2:b:5"], tls=True) == {
        1: BrokerInfo(1, "a", 8124),
        2: BrokerInfo(2, "b", 5),
    }


def test_a_partition_has_a_key() -> None:
    assert PARTITION.key == KEY
    assert TopicPartitions("test", ((1, 10003),)).keys == (KEY,)


def test_partitions_are_in_order_of_broker_topic_and_id() -> None:
    other = BrokerInfo(2, "10.0.0.0", 8123)
    sorted_ = [
        Partition(BROKER, "a", 9),
        Partition(BROKER, "b", 0),
        Partition(BROKER, "b", 10),
        Partition(other, "a", 0),
    ]
    assert sorted(reversed(sorted_)) == sorted_


@pytest.mark.parametrize("text", ["test#1:3:2#", "test#1:3:2#many", "test#1:3:2#99999999999"])
def test_a_size_that_is_none_is_left_out(text: str) -> None:
    assert ProducerTopic.parse(text) == ProducerTopic("test", (TopicBroker(1, 3, 2),))


def test_masters_are_a_list() -> None:
    assert parse_addresses(" a:1, b ;c:2,,a:1") == (
        Address("a", 1),
        Address("b", 8715),
        Address("c", 2),
    )
    assert parse_addresses("[::1], [::2]:3") == (Address("::1", 8715), Address("::2", 3))


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_addresses, ""),
        (parse_addresses, " , "),
        (parse_addresses, "a:b"),
        (parse_addresses, "a:0"),
        (parse_addresses, "a:65536"),
        (parse_addresses, ":1"),
        (BrokerInfo.parse, "1:h"),
        (BrokerInfo.parse, "x:h:1"),
        (BrokerInfo.parse, "-1:h:1"),
        (BrokerInfo.parse, "1: :1"),
        (BrokerInfo.parse, "1:h:99999"),
        (BrokerInfo.parse, "1:h:1:1"),
        (BrokerInfo.parse, "²:h:1"),
        (BrokerInfo.parse, "1" * 5000 + ":h:1"),
        (PartitionKey.parse, "1:t"),
        (PartitionKey.parse, "1:t:x"),
        (Partition.parse, "1:h:1"),
        (Partition.parse, "1:h:1#t"),
        (Partition.parse, "1:h#t:1"),
        (Partition.parse, "1:h:1#t:1#"),
        (PartitionFailure.parse, "411"),
        (PartitionFailure.parse, "411:1:t:0"),
        (SubscribeInfo.parse, "c#1:h:1#t:1"),
        (SubscribeInfo.parse, "c@g#1:h:1"),
        (SubscribeInfo.parse, "c@g@h#1:h:1#t:1"),
        (SubscribeInfo.parse, "@g#1:h:1#t:1"),
        (TopicCondition.parse, "test"),
        (TopicCondition.parse, "test#,"),
        (TopicCondition.parse, "#a"),
        (RequiredPartitions.parse, "1:t:0"),
        (RequiredPartitions.parse, "1:t:0=-1"),
        (RequiredPartitions.parse, "1:t:0=" + "9" * 20),
        (ProducerTopic.parse, "test"),
        (ProducerTopic.parse, "test#1:2"),
        (TopicInfo.parse, "1:h:1#t:1:true:false"),
        (TopicInfo.parse, "1:h:1#t:1:yes:no:1"),
        (TopicMeta.parse, "t#1:1:1"),
        (TopicPartitions.parse, "t#1"),
        (BrokerClientId.parse, "1:h"),
    ],
)
def test_what_is_laid_out_otherwise_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(MalformedText) as refused:
        parse(text)
    assert len(str(refused.value)) < 600
