import pytest

from mq.cli.errors import UsageError
from mq.cli.record_format import Body, RecordFormat, decoder
from mq.protocol.message import StoredMessage


def message(body: bytes = b"hello", **properties: str) -> StoredMessage:
    return StoredMessage(
        "Orders",
        body,
        {"KEYS": "k1 k2", "TAGS": "new", "colour": "blue", **properties},
        queue_id=3,
        queue_offset=42,
        physical_offset=100,
        born_timestamp=1_700_000_000_001,
        born_host=("10.0.0.9", 555),
        store_timestamp=1_700_000_000_123,
        store_host=("10.0.0.1", 10911),
        reconsume_times=2,
        broker_name="broker-a",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t", "Orders"),
        ("%p %q", "3 3"),
        ("%o", "42"),
        ("%k|%K", "k1 k2|5"),
        ("%g", "new"),
        ("%b %s %S", "hello hello 5"),
        ("%T %B", "1700000000123 1700000000001"),
        ("%D", "2023-11-14T22:13:20.123Z"),
        ("%h", "KEYS=k1 k2,TAGS=new,colour=blue"),
        ("%P{colour}%P{nothing}", "blue"),
        ("%n %H %r", "broker-a 10.0.0.9:555 2"),
        ("%I", "0A00000100002A9F0000000000000064"),
        ("100%%", "100%"),
        (r"a\tb\n\r\0\\\x41", "a\tb\n\r\0\\A"),
        (r"%T %q %o %k %s\n", "1700000000123 3 42 k1 k2 hello\n"),
        ("", ""),
    ],
)
def test_each_letter_stands_for_its_part(text: str, expected: str) -> None:
    assert RecordFormat(text)(message()) == expected


def test_the_message_id_is_the_unique_one_where_there_is_one() -> None:
    assert RecordFormat("%i")(message(UNIQ_KEY="U1")) == "U1"
    assert RecordFormat("%i")(message()) == RecordFormat("%I")(message())


def test_a_message_without_keys_has_none_of_them() -> None:
    plain = StoredMessage("Orders", b"")
    assert RecordFormat("[%k] %K [%g]")(plain) == "[] -1 []"


@pytest.mark.parametrize("text", ["%z", "%", "\\", r"\q", "%P{open", r"\x4"])
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="means nothing"):
        RecordFormat(text)


@pytest.mark.parametrize(
    ("body", "data", "expected"),
    [
        (Body.AUTO, b"t\xc3\xbc", "tü"),
        (Body.AUTO, b"\xff\x00", "/wA="),
        (Body.TEXT, b"a\xff", "a�"),
        (Body.HEX, b"\x00\xff", "00ff"),
        (Body.BASE64, b"hi", "aGk="),
        (Body.JSON, b'{ "a": [1, 2] }', '{"a":[1,2]}'),
        (Body.JSON, b"no json", '"no json"'),
        (Body.JSON, b"[" * 100_000, '"' + "[" * 100_000 + '"'),
    ],
)
def test_bodies_are_written_as_asked_for(body: Body, data: bytes, expected: str) -> None:
    assert decoder(body)(data) == expected
    assert RecordFormat("%b", body)(message(data)) == expected


def test_a_body_of_another_character_set_is_read_as_such() -> None:
    assert decoder(Body.AUTO, "latin-1")(b"\xfc") == "ü"
