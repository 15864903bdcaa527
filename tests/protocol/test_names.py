import pytest

from mq.protocol.names import (
    BUILT_IN_GROUPS,
    NOT_SENDABLE_TOPICS,
    SYSTEM_TOPICS,
    IllegalName,
    check_group,
    check_topic,
    dead_letter_topic,
    is_system_group,
    is_system_topic,
    reply_topic,
    retry_topic,
)


@pytest.mark.parametrize("name", ["T", "a-b_C%|9", "%RETRY%group", "x" * 127])
def test_legal_topics_pass(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "blank"),
        (" \t", "blank"),
        ("../x", "illegal characters"),
        ("a.b", "illegal characters"),
        ("a/b", "illegal characters"),
        ("a\n", "illegal characters"),
        ("a b", "illegal characters"),
        ("größe", "illegal characters"),
        ("x" * 128, "longer than topic max length"),
    ],
)
def test_illegal_topics_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(IllegalName, match=reason):
        check_topic(name)


def test_groups_may_be_longer_than_topics() -> None:
    assert check_group("g" * 255)
    with pytest.raises(IllegalName, match="longer than group max length 255"):
        check_group("g" * 256)


def test_system_topics_are_told_apart() -> None:
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_anything")
    assert not is_system_topic("TopicTest")
    assert NOT_SENDABLE_TOPICS < SYSTEM_TOPICS


def test_system_groups_are_told_apart() -> None:
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("TOOLS_CONSUMER")
    assert "TOOLS_CONSUMER" in BUILT_IN_GROUPS


def test_derived_topics_have_the_names_of_java() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dead_letter_topic("g") == "%DLQ%g"
    assert reply_topic("c") == "c_REPLY_TOPIC"
