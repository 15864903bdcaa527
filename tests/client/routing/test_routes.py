from typing import Any

import pytest

from mq.client.errors import BadAnswer
from mq.client.routing.routes import (
    any_broker,
    broker_address,
    decode_route,
    read_queues,
    write_queues,
)
from mq.protocol.bodies import BrokerData, MessageQueue, QueueData, TopicRouteData


def route(perm: int = 6, order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        order_topic_conf=order,
        queue_datas=[
            QueueData(broker_name="b2", read_queue_nums=1, write_queue_nums=2, perm=perm),
            QueueData(broker_name="b1", read_queue_nums=2, write_queue_nums=1, perm=6),
        ],
        broker_datas=[
            BrokerData(cluster="c", broker_name="b1", broker_addrs={0: "h1:1", 1: "h1:2"}),
            BrokerData(cluster="c", broker_name="b2", broker_addrs={0: "h2:1"}),
        ],
    )


def places(queues: list[MessageQueue]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_write_and_read_queues_are_counted_separately() -> None:
    assert places(write_queues("t", route())) == [("b1", 0), ("b2", 0), ("b2", 1)]
    assert places(read_queues("t", route())) == [("b1", 0), ("b1", 1), ("b2", 0)]


def test_a_broker_without_permission_is_left_out() -> None:
    assert places(write_queues("t", route(perm=4))) == [("b1", 0)]
    assert places(read_queues("t", route(perm=2))) == [("b1", 0), ("b1", 1)]


def test_a_broker_without_a_master_is_read_but_not_written() -> None:
    headless = route()
    headless.broker_datas[1].broker_addrs = {1: "h2:2"}
    assert places(write_queues("t", headless)) == [("b1", 0)]
    assert broker_address(headless, "b2") is None
    assert broker_address(headless, "b2", exact=False) == "h2:2"


def test_an_ordered_topic_keeps_the_queues_of_its_configuration() -> None:
    assert places(write_queues("t", route(order="b3:1;b1:2"))) == [("b3", 0), ("b1", 0), ("b1", 1)]


def test_any_broker_is_a_master_if_there_is_one() -> None:
    slave_first = route()
    slave_first.broker_datas[0].broker_addrs = {1: "h1:2"}
    assert any_broker(slave_first) == "h2:1"
    assert any_broker(TopicRouteData()) is None


def test_a_route_that_is_not_json_is_a_bad_answer_that_names_the_peer() -> None:
    with pytest.raises(BadAnswer, match=r"^ns:9876: unreadable answer"):
        decode_route(b"<html>", "ns:9876")


@pytest.mark.parametrize(
    "queues",
    [
        {"order_topic_conf": "b1:2000000"},
        {"order_topic_conf": "b1:65536;b2:65536;b3:1"},
        {"order_topic_conf": "b1:" + "9" * 5000},
        {"queue_datas": [QueueData(broker_name="b1", read_queue_nums=65537)]},
        {"queue_datas": [QueueData(broker_name="b", write_queue_nums=65536) for _ in range(3)]},
    ],
)
def test_a_route_with_more_queues_than_a_topic_may_have_is_a_bad_answer(
    queues: dict[str, Any],
) -> None:
    with pytest.raises(BadAnswer, match="a topic has at most"):
        decode_route(TopicRouteData(**queues).encode(), "ns:9876")
