"""What a consumer of TubeMQ is a member of, and what it wants there."""

from mq.client.tube.membership import Subscription


def test_one_topic_need_not_be_in_a_list() -> None:
    assert Subscription("orders").topics == Subscription(["orders"]).topics == ["orders"]
