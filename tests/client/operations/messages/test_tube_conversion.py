import pytest

from mq.client.operations.messages.tube_conversion import FOREIGN, attributes_of, message_of
from mq.client.tube.message import TubeMessage
from mq.protocol import properties as stored
from mq.protocol.message import Message
from mq.protocol.tube import payload


def there_and_back(properties: dict[str, str], flag: int = 0) -> Message:
    attributes, kind = attributes_of(properties, flag)
    body, text = payload.decode(*payload.encode(b"body", attributes, kind))
    return message_of("topic", TubeMessage("topic", body, 1, 1, text))


def foreign(text: str) -> dict[str, str]:
    """The properties, as they are stored, of a copy of a message with these attributes."""
    copy = message_of("topic", TubeMessage("topic", b"body", 1, 1, text))
    return stored.decode(stored.encode(copy.system))


@pytest.mark.parametrize(
    ("properties", "flag"),
    [
        ({}, 0),
        ({"TAGS": "paid", "KEYS": "a b", "price": "5,50=%", "shop": "7"}, 0),
        ({"TAGS": "a=b"}, 0),
        ({"TAGS": "50%", "shop": "7"}, 0),
        ({"TAGS": " paid "}, 0),
        ({"shop": " ", " ": "x"}, 0),
        ({"mqQuoted": "mine", "mqFlag": "5", "$msgType$": "x", "note": "$msgTime$"}, 0),
        ({"shop": "7"}, -3),
    ],
    ids=str,
)
def test_there_and_back_a_message_is_what_it_was(properties: dict[str, str], flag: int) -> None:
    copy = there_and_back(properties, flag)
    assert (copy.system, copy.flag, bytes(copy.body)) == (properties, flag, b"body")


def test_type_and_time_become_tag_and_property() -> None:
    assert foreign("$msgType$=paid,$msgTime$=202611231015,shop=7") == {
        "TAGS": "paid",
        "msgTime": "202611231015",
        "shop": "7",
    }


@pytest.mark.parametrize("name", ["TRAN_MSG", "DELAY", "TIMER_DELAY_SEC", "REAL_TOPIC", "TAGS"])
def test_an_attribute_has_brokers_of_rocketmq_do_nothing(name: str) -> None:
    assert foreign(f"{name}=true") == {FOREIGN + name: "true"}


def test_an_attribute_is_one_property_whatever_is_in_it() -> None:
    assert foreign("a=1\x02TRAN_MSG\x01true") == {"a": "1%02TRAN_MSG%01true"}
    assert foreign("a\x01b\x02DELAY=3") == {"a%01b%02DELAY": "3"}
    assert foreign("mqQuoted=1,a=1%02DELAY%013") == {"a": "1%02DELAY%013"}


@pytest.mark.parametrize("flag", ["x", "", "9" * 5000, "4294967296", "²"])
def test_a_flag_that_is_none_is_0(flag: str) -> None:
    assert message_of("t", TubeMessage("t", b"b", 1, 1, f"mqFlag={flag}")).flag == 0
