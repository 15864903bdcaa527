"""Changes of attributes, as Java 5.5.0 checks and applies them."""

import pytest

from mq.protocol.attributes import GROUP, TOPIC, apply_changes, check_changes, parse_changes


def test_changes_are_parsed() -> None:
    assert parse_changes("+message.type=FIFO,-reserve.time") == {
        "+message.type": "FIFO",
        "-reserve.time": "",
    }
    assert parse_changes("") == {}


@pytest.mark.parametrize("text", ["a=b", "+a", "+a=", "-a=b", "+a=1,+a=2", "=", "a"])
def test_changes_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"format is wrong|duplication"):
        parse_changes(text)


@pytest.mark.parametrize(
    ("current", "changes", "reason"),
    [
        (None, {"+no.such": "1"}, "unsupported key: no.such"),
        (None, {"message.type": "FIFO"}, "wrong format key: message.type"),
        (None, {"-message.type": ""}, "only add attribute is supported while creating"),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        ({}, {"+message.type": "SOON"}, "value is not in set"),
        ({}, {"+message.type": "MIXED"}, "MIXED message type is not supported."),
        ({}, {"+message.type": "LITE"}, "this broker has no light topics"),
        ({}, {"+queue.type": "SimpleCQ"}, "attempt to update an unchangeable attribute"),
        (None, {"+queue.type": "BatchCQ"}, "queues of type SimpleCQ only"),
        (None, {"+cleanup.policy": "COMPACTION"}, "does not compact topics"),
        (None, {"+reserve.time": "-2"}, "value is not in range"),
        (None, {"+reserve.time": "soon"}, "expected a whole number"),
        (None, {"+reserve.time": "1" * 5000}, "expected a whole number"),
        ({"reserve.time": "1"}, {"+reserve.time": "2", "-reserve.time": ""}, "alter duplication"),
    ],
)
def test_a_change_that_java_refuses_is_refused(
    current: dict[str, str] | None, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        check_changes(TOPIC, current, changes)


@pytest.mark.parametrize(
    ("key", "value", "taken"),
    [
        ("priority.factor", "100", True),
        ("priority.factor", "101", False),
        ("lite.sub.model", "Shared", True),
        ("lite.sub.model", "shared", False),
        ("lite.sub.reset.offset.exclusive", "true", True),
        ("lite.sub.reset.offset.exclusive", "yes", False),
        ("lite.bind.topic", "x" * 256, False),
    ],
)
def test_attributes_of_groups_are_checked(key: str, value: str, taken: bool) -> None:
    try:
        check_changes(GROUP, None, {f"+{key}": value})
    except ValueError:
        assert not taken
    else:
        assert taken


def test_a_change_keeps_what_it_does_not_name() -> None:
    before = {"message.type": "FIFO", "reserve.time": "1"}
    assert apply_changes(before, None) == before
    assert apply_changes(before, {"+message.type": "DELAY"}) == {
        "message.type": "DELAY",
        "reserve.time": "1",
    }
    assert apply_changes(before, {"-reserve.time": ""}) == {"message.type": "FIFO"}


def test_stored_attributes_that_are_sent_back_are_no_change() -> None:
    before = {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    check_changes(TOPIC, before, before)
    assert apply_changes(before, before) == before
