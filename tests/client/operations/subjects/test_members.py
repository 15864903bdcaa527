"""Members of a group that do not want the same."""

from mq.client.operations.subjects.members import Disagreement, disagreements, holders
from mq.protocol.bodies import (
    ConsumerRunningInfo,
    MessageQueue,
    ProcessQueueInfo,
    SubscriptionData,
)


def info(**wanted: str) -> ConsumerRunningInfo:
    """A member that subscribes to these topics with these tags."""
    return ConsumerRunningInfo(
        subscription_set=[
            SubscriptionData(topic=name, sub_string=tags) for name, tags in wanted.items()
        ]
    )


def test_members_that_want_the_same_do_not_disagree() -> None:
    assert disagreements({"a": info(T="x"), "b": info(T="x")}) == []
    assert disagreements({"a": info(T="x")}) == []
    assert disagreements({}) == []


def test_each_topic_that_is_wanted_differently_is_named_with_what_each_member_wants() -> None:
    found = disagreements(
        {"a": info(T="x", U="*"), "b": info(T="y", U="*"), "c": info(U="*", V="*")}
    )
    assert found == [
        Disagreement("T", (("a", "x"), ("b", "y"), ("c", None))),
        Disagreement("V", (("a", None), ("b", None), ("c", "*"))),
    ]


def test_the_same_text_as_tags_and_as_sql_is_not_the_same() -> None:
    sql = ConsumerRunningInfo(
        subscription_set=[SubscriptionData(topic="T", sub_string="a", expression_type="SQL92")]
    )
    assert disagreements({"a": info(T="a"), "b": sql}) == [
        Disagreement("T", (("a", "a"), ("b", "SQL92 a")))
    ]


def test_the_retry_topic_is_nobodys_choice() -> None:
    with_retry = ConsumerRunningInfo(
        subscription_set=[
            SubscriptionData(topic="T", sub_string="*"),
            SubscriptionData(topic="%RETRY%g", sub_string="*"),
        ]
    )
    assert disagreements({"a": with_retry, "b": info(T="*")}) == []


def test_the_holder_of_a_queue_is_who_says_so() -> None:
    queue = MessageQueue("T", "broker-a", 3)
    held = ConsumerRunningInfo(mq_table={queue: ProcessQueueInfo()})
    assert holders({"a": held, "b": info()}) == {queue: "a"}
