import pytest

from mq.client.errors import BadAnswer
from mq.client.tube.errors import TubeError
from mq.client.tube.producer_options import TubeProducerOptions
from mq.client.tube.routing import Lane, Routing
from mq.protocol.tube.codes import Code
from mq.protocol.tube.strings import BrokerInfo, Partition


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def routing(clock: Clock | None = None, **options: float) -> Routing:
    """Two brokers: the first has two stores of two partitions, the second one partition."""
    made = Routing(TubeProducerOptions(**options), clock or Clock())  # type: ignore[arg-type]
    made.update_brokers(["1:10.0.0.1: ", "2:10.0.0.2:9123"], 77)
    made.update_topics(["test#1:2:2,2:1:1#2000000", "other#3:5:5"])
    return made


def ids(lanes: list[Lane]) -> list[tuple[int, int]]:
    return [(lane.partition.broker.broker_id, lane.partition.partition_id) for lane in lanes]


def fail(made: Routing, lane: Lane, *, link: bool = False) -> None:
    made.sent(lane)
    made.failed(lane, link=link)


ALL = [(1, 0), (1, 1), (1, 10000), (1, 10001), (2, 0)]


def test_partitions_are_those_of_stores_at_brokers_that_are_known() -> None:
    made = routing()
    assert made.partitions("test")[:1] == [Partition(BrokerInfo(1, "10.0.0.1", 8123), "test", 0)]
    assert [(p.broker.broker_id, p.partition_id) for p in made.partitions("test")] == ALL
    assert made.partitions("other") == made.partitions("unknown") == []
    assert made.checksum == 77


def test_each_partition_has_its_turn() -> None:
    made = routing()
    chosen = ids([made.choose("test") for _ in range(10)])
    assert sorted(chosen[:5]) == ALL
    assert chosen[5:] == chosen[:5]


def test_the_turn_outlives_a_new_list() -> None:
    made = routing()
    before = ids([made.choose("test") for _ in range(5)])
    made.choose("test")
    made.update_topics(["test#1:2:2,2:1:1#2000000"])
    assert ids([made.choose("test")]) == before[1:2]


def test_a_topic_without_partitions_cannot_be_sent_to() -> None:
    for topic in ("other", "unknown"):
        with pytest.raises(TubeError) as refused:
            routing().choose(topic)
        assert refused.value.code == Code.PARAMETER_MSG_TOPIC_NO_PARTITION


def test_the_limit_is_the_topics_own_or_the_clusters() -> None:
    made = routing()
    made.max_message_size = 5
    assert (made.limit("test"), made.limit("other")) == (2_000_000, 5)


def test_a_partition_is_frozen_after_more_than_three_failures_in_a_row() -> None:
    clock = Clock()
    made = routing(clock)
    lane = made.choose("test")
    for _ in range(3):
        fail(made, lane)
    made.sent(lane)
    made.answered(lane, Code.SUCCESS)
    for _ in range(4):
        assert lane in [made.choose("test") for _ in range(5)]
        fail(made, lane)
    assert lane not in [made.choose("test") for _ in range(10)]
    clock.now += 3.1
    assert lane in [made.choose("test") for _ in range(5)]


def test_partitions_that_are_all_frozen_are_tried_all_the_same() -> None:
    made = routing()
    for lane in [made.choose("test") for _ in range(5)]:
        for _ in range(4):
            fail(made, lane)
    assert set(ids([made.choose("test") for _ in range(20)])) <= set(ALL)


def test_a_broker_that_is_unavailable_is_left_alone_for_50_seconds() -> None:
    clock = Clock()
    made = routing(clock)
    lanes = [made.choose("test") for _ in range(5)]
    first = next(lane for lane in lanes if lane.broker.info.broker_id == 1)
    made.sent(first)
    made.answered(first, Code.SERVICE_UNAVAILABLE)
    assert ids([made.choose("test") for _ in range(3)]) == [(2, 0)] * 3
    (other,) = (lane for lane in lanes if lane.broker.info.broker_id == 2)
    made.sent(other)
    made.answered(other, Code.SERVICE_UNAVAILABLE)
    with pytest.raises(TubeError) as refused:
        made.choose("test")
    assert refused.value.code == Code.ALL_PARTITION_FROZEN and "503" in refused.value.text
    clock.now += 50.1
    assert sorted(ids([made.choose("test") for _ in range(5)])) == ALL


def test_brokers_that_are_all_unavailable_are_asked_again_soon() -> None:
    clock = Clock()
    made = routing(clock)
    for lane in [made.choose("test") for _ in range(5)]:
        made.sent(lane)
        made.answered(lane, Code.SERVICE_UNAVAILABLE)
    clock.now += 2.9
    with pytest.raises(TubeError):
        made.choose("test")
    clock.now += 0.2
    assert sorted(ids([made.choose("test") for _ in range(5)])) == ALL
    lane = made.choose("test")
    made.sent(lane)
    made.answered(lane, Code.SERVICE_UNAVAILABLE)
    others = [made.choose("test") for _ in range(8)]
    assert {one.broker for one in others}.isdisjoint({lane.broker})


def test_the_error_names_the_broker_with_too_many_unanswered_sends() -> None:
    made = routing(link_pending=1)
    for lane in [made.choose("test") for _ in range(5)]:
        made.sent(lane)
        made.sent(lane)
    with pytest.raises(TubeError, match="sends are unanswered"):
        made.choose("test")


def test_a_broker_that_cannot_be_reached_is_left_alone_but_never_all_of_them() -> None:
    made = routing()
    lanes = [made.choose("test") for _ in range(5)]
    for lane in lanes:
        for _ in range(10):
            fail(made, lane, link=True)
    assert len({lane.broker for lane in [made.choose("test") for _ in range(10)]}) == 1
    left = made.choose("test").broker
    (alone,) = (broker for broker in made.brokers.values() if broker is not left)
    back = next(lane for lane in lanes if lane.broker is alone)
    made.sent(back)
    made.answered(back, Code.SUCCESS)
    assert alone.forbidden_until == 0.0


def test_failures_long_ago_are_forgotten() -> None:
    clock = Clock()
    made = routing(clock)
    lane = made.choose("test")
    for _ in range(20):
        clock.now += 30
        fail(made, lane, link=True)
    assert lane.broker.forbidden_until == 0.0


def test_a_broker_that_does_not_answer_gets_no_more() -> None:
    made = routing(link_pending=2)
    lanes = [made.choose("test") for _ in range(5)]
    (second,) = (lane for lane in lanes if lane.broker.info.broker_id == 2)
    for _ in range(3):
        assert second in [made.choose("test") for _ in range(5)]
        made.sent(second)
    assert second not in [made.choose("test") for _ in range(9)]


def test_when_too_many_wait_no_more_are_sent() -> None:
    made = routing(pending=2)
    lanes = [made.choose("test"), made.choose("test")]
    for lane in lanes:
        made.sent(lane)
    with pytest.raises(TubeError) as refused:
        made.choose("test")
    assert refused.value.code == Code.CLIENT_HIGH_FREQUENCY_REQUEST
    made.abandoned(lanes[0])
    made.choose("test")


def test_a_broker_keeps_what_is_known_of_it_while_it_is_the_same() -> None:
    made = routing()
    first, second = made.brokers[1], made.brokers[2]
    made.update_brokers(["1:10.0.0.1: ", "2:10.0.0.3:9123", "3:10.0.0.4: "], 78)
    assert made.brokers[1] is first and made.brokers[2] is not second
    assert len(made.partitions("other")) == 25


def test_an_invalid_list_changes_nothing() -> None:
    made = routing()
    with pytest.raises(BadAnswer):
        made.update_brokers(["1:10.0.0.1"], 78)
    with pytest.raises(BadAnswer):
        made.update_topics(["test#1:2:x"])
    with pytest.raises(BadAnswer, match="1000000 are believed"):
        made.update_topics(["test#1:100000:100000"])
    assert made.checksum == 77 and len(made.partitions("test")) == 5


def test_a_topic_that_a_master_does_not_know_yet_is_sent_to_as_before() -> None:
    clock = Clock()
    made = routing(clock)
    lane = made.choose("test")
    made.update_topics([])
    clock.now += 29
    made.update_topics(["other#1:1:1"])
    assert lane in [made.choose("test") for _ in range(5)]
    made.update_topics(["test#1:1:1"])  # one of its brokers is back
    assert [p.broker.broker_id for p in made.partitions("test")] == [1]
    clock.now += 29
    made.update_topics([])
    assert made.partitions("test")
    clock.now += 31
    made.update_topics([])
    assert made.partitions("test") == []
