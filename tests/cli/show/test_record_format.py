import pytest

from mq.cli.runtime.errors import UsageError
from mq.cli.show.record_format import BodyFormat, RecordFormat, decoder, value_of
from mq.protocol.message import StoredMessage
from tests.cli.support import Mq


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
    with pytest.raises(UsageError, match="is unknown"):
        RecordFormat(text)


@pytest.mark.parametrize(
    ("body", "data", "expected"),
    [
        (BodyFormat.AUTO, b"t\xc3\xbc", "tü"),
        (BodyFormat.AUTO, b"\xff\x00", "/wA="),
        (BodyFormat.TEXT, b"a\xff", "a�"),
        (BodyFormat.HEX, b"\x00\xff", "00ff"),
        (BodyFormat.BASE64, b"hi", "aGk="),
        (BodyFormat.JSON, b'{ "a": [1, 2] }', '{"a":[1,2]}'),
        (BodyFormat.JSON, b"no json", '"no json"'),
        (BodyFormat.JSON, b"[" * 100_000, '"' + "[" * 100_000 + '"'),
        (BodyFormat.JSON, b"[12345678901234567890123, 1.50]", "[12345678901234567890123,1.5]"),
        (BodyFormat.JSON, b"[NaN]", '"[NaN]"'),
        (BodyFormat.JSON, b'{"a":1,"a":2}', r'"{\"a\":1,\"a\":2}"'),
        (BodyFormat.JSON, rb'["\ud800"]', r'"[\"\\ud800\"]"'),
    ],
)
def test_bodies_are_written_as_asked_for(body: BodyFormat, data: bytes, expected: str) -> None:
    assert str(decoder(body)(data)) == expected
    assert RecordFormat("%b", body)(message(data)) == expected


@pytest.mark.parametrize(
    "data", [b"no json", b"[NaN]", rb'["\ud800"]', b"[" * 900 + b"]" * 900, b'{"a":1,"a":2}']
)
def test_what_is_no_value_in_json_is_text_and_says_so(data: bytes) -> None:
    assert value_of(data, BodyFormat.JSON) == (data.decode(), "utf-8")


@pytest.fixture(scope="module")
def topic() -> str:
    return "Formatted"


def test_commands_that_show_messages_take_a_format(cluster: Mq, topic: str) -> None:
    assert cluster("updateTopic", "-c", "DefaultCluster", "-t", topic, "-w", "1").status == 0
    sent = cluster("sendMessage", "-t", topic, "-p", '{ "x": 1 }', "-k", "kf", "-o", "json").json
    row = sent["data"][0]
    id, place = row["messageId"], f"{row['queueId']} {row['queueOffset']}"
    options = ("--format", r"%q %o %k %b\n", "--body", "json")
    expected = f'{place} kf {{"x":1}}\n'
    assert cluster("printMsg", "-t", topic, *options).out == expected
    assert cluster("consumeMessage", "-t", topic, *options).out == expected
    assert cluster("queryMsgByKey", "-t", topic, "-k", "kf", *options).out == expected
    assert cluster("queryMsgByUniqueKey", "-t", topic, "-i", id, *options).out == expected
    assert cluster("queryMsgById", "-i", row["offsetId"], *options).out == expected
    at = ("-b", "broker-a", "-i", str(row["queueId"]), "-o", str(row["queueOffset"]))
    assert cluster("queryMsgByOffset", "-t", topic, *at, *options).out == expected
    found = cluster("queryMsgByKey", "-t", topic, "-k", "kf", "--body", "json", "-o", "json").json
    assert (found["data"][0]["body"], found["data"][0]["bodyEncoding"]) == ({"x": 1}, "json")
    chosen = ("--body", "hex", "--columns", "body", "-o", "csv", "--no-header")
    assert (
        cluster("queryMsgByKey", "-t", topic, "-k", "kf", *chosen).out == "7b202278223a2031207d\n"
    )


def test_a_format_and_another_layout_are_too_much(cluster: Mq, topic: str) -> None:
    for other in (("-o", "json"), ("--columns", "body"), ("--no-header",)):
        finished = cluster("printMsg", "-t", topic, "--format", "%b", *other)
        assert (finished.status, finished.out) == (64, "")
    assert cluster("printMsg", "-t", topic, "--format", "%z").status == 64
