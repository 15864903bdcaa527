import pytest

from mq.protocol.tube import names
from mq.protocol.tube.errors import IllegalName


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (names.check_topic, "t" * 64),
        (names.check_topic, "Test_1"),
        (names.check_group, "g-1_a"),
        (names.check_group, "g" * 1024),
        (names.check_client_id, "test_10.0.0.1-123-1600000000000-1-0.1.0-0.5.0"),
        (names.check_client_id, "c" * 1024),
        (names.check_host, "broker-1.example"),
        (names.check_host, "10.0.0.1"),
        (names.check_session_key, "any text, that is printed"),
    ],
)
def test_a_name_is_taken_without_the_blanks_around_it(check: names.Check, text: str) -> None:
    assert check(f"  {text}\t") == text


@pytest.mark.parametrize(
    ("check", "text", "why"),
    [
        (names.check_topic, " ", "topicName is blank"),
        (names.check_topic, "t" * 65, "topicName has 65 characters: 64 are allowed"),
        (names.check_topic, "t", "topicName 't' is not legal"),
        (names.check_topic, "1t", "not legal"),
        (names.check_topic, "a-b", "not legal"),
        (names.check_topic, "té", "not legal"),
        (names.check_topic, "../../etc", "not legal"),
        (names.check_topic, "__offset_history__", "not legal"),
        (names.check_group, "g" * 1025, "1024 are allowed"),
        (names.check_group, "-g", "not legal"),
        (names.check_group, "g@h", "not legal"),
        (names.check_client_id, "c" * 1025, "clientId has 1025 characters: 1024 are allowed"),
        (names.check_client_id, "c#d", "not legal"),
        (names.check_client_id, "c\nd", "not legal"),
        (names.check_host, "h" * 257, "256 are allowed"),
        (names.check_host, "a b", "not legal"),
        (names.check_session_key, "", "sessionKey is blank"),
        (names.check_session_key, "a\0b", "not legal"),
        (names.check_session_key, "k" * 1025, "1024 are allowed"),
    ],
)
def test_a_name_is_refused_with_what_is_wrong(check: names.Check, text: str, why: str) -> None:
    with pytest.raises(IllegalName, match=why):
        check(text)


def test_what_is_refused_is_not_repeated_at_length() -> None:
    with pytest.raises(IllegalName) as refused:
        names.check_group("g-" + "é" * 1000)
    assert len(str(refused.value)) < 250


def test_filter_items_are_taken_once_and_without_blank_ones() -> None:
    assert names.check_filter_items([" a ", "a", "", "_B1"]) == {"a", "_B1"}


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([f"i{number}" for number in range(501)], "501 filter items"),
        (["a" * 257], "256 are allowed"),
        (["a-b"], "filterItem 'a-b' is not legal"),
    ],
)
def test_filter_items_are_refused(items: list[str], why: str) -> None:
    with pytest.raises(IllegalName, match=why):
        names.check_filter_items(items)


def test_topics_are_refused_where_there_are_too_many() -> None:
    many = [f"topic{number}" for number in range(1024)]
    assert len(names.check_topics([*many, "", " topic1 "])) == 1024
    with pytest.raises(IllegalName, match="1025 topics: a client may have 1024"):
        names.check_topics([*many, "one_more"])
    with pytest.raises(IllegalName, match="topicName"):
        names.check_topics(["fine", "not fine"])


def test_partition_ids_have_the_number_of_their_store() -> None:
    assert names.partition_ids(2, 3) == [0, 1, 2, 10000, 10001, 10002]
