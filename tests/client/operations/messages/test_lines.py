import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.operations.messages.lines import (
    BodyForm,
    MalformedLine,
    encoder,
    messages_of,
)
from mq.protocol.message import StoredMessage, decode_records, encode_record
from mq.protocol.properties import decode as decode_properties


def stored(properties: bytes, body: bytes = b"body", **options: Any) -> StoredMessage:
    """A message as a pull brings it, with these bytes as properties."""
    record = encode_record(StoredMessage("Topic", body, **options))
    head, size = record[:-2], len(record) + len(properties)
    record = size.to_bytes(4, "big") + head[4:] + len(properties).to_bytes(2, "big") + properties
    (message,) = decode_records(record)
    message.broker_name = "broker-a"
    return message


def test_no_other_field_of_a_line_has_an_integer_of_its_body_lose_digits() -> None:
    body = b'{"n":123456789012345678901234567890}'
    twice = stored(b"a\x011\x02a\x012\x02UNIQ_KEY\x01A", body)
    (exported,) = messages_of(encoder(BodyForm.JSON)([twice]))
    written = b'{"weight":0.12345678901234567890123,"body":%b,"bodyEncoding":"json"}' % body
    (by_hand,) = messages_of(written)
    assert exported.body == by_hand.body == body
    assert exported.properties["a"] == "2"


def line_of(message: StoredMessage, form: BodyForm = BodyForm.TEXT) -> dict[str, Any]:
    text = encoder(form)([message])
    assert text.count(b"\n") == 1 and text.endswith(b"\n")
    return dict(json.loads(text))


def test_a_line_has_these_fields_in_this_order() -> None:
    message = stored(
        b"UNIQ_KEY\x01ABC\x02TAGS\x01t",
        queue_id=3,
        queue_offset=17,
        born_timestamp=1,
        store_timestamp=2,
        born_host=("10.0.0.7", 5),
        store_host=("2001:db8::1", 6),
        flag=-7,
        reconsume_times=2,
    )
    assert encoder(BodyForm.TEXT)([message]) == (
        b'{"messageId":"ABC","topic":"Topic","brokerName":"broker-a","queueId":3,"queueOffset":17,'
        b'"bornTimestamp":1,"bornHost":"10.0.0.7:5","storeTimestamp":2,'
        b'"storeHost":"[2001:db8::1]:6","flag":-7,"sysFlag":32,"reconsumeTimes":2,'
        b'"properties":{"UNIQ_KEY":"ABC","TAGS":"t"},"body":"body","bodyEncoding":"utf-8"}\n'
    )


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"UNIQ_KEY\x01A",
        b"UNIQ_KEY\x01A\x02",  # 5.x ends it so
        b"a\x01b\x02UNIQ_KEY\x01A\x02UNIQ_KEY\x01B\x02",
        b"XUNIQ_KEY\x01A",
        b"XUNIQ_KEY\x01A\x02UNIQ_KEY\x01B",
        b"UNIQ_KEY\x01B\x02XUNIQ_KEY\x01A",
        b'a\x01quo"te\x02UNIQ_KEY\x01A',
        b"a\x01back\\slash\x02UNIQ_KEY\x01A",
        b"a\x01new\nline\x02UNIQ_KEY\x01A",
        b"a\x01gr\xc3\xbc\xc3\x9fe\x02UNIQ_KEY\x01A",
        b"a\x01broken \xff text\x02UNIQ_KEY\x01A",
        b"a\x01\x02UNIQ_KEY\x01A",
        b"\x01b\x02UNIQ_KEY\x01A",
        b"a\x02UNIQ_KEY\x01A",
        b"a\x01b\x01c\x02UNIQ_KEY\x01A",
        b"\x02\x02UNIQ_KEY\x01A",
    ],
)
def test_properties_are_those_that_consumers_get(properties: bytes) -> None:
    message = stored(properties)
    line = line_of(message)
    expected = decode_properties(properties.decode("utf-8", "replace"))
    assert line["properties"] == expected
    assert line["messageId"] == expected.get("UNIQ_KEY", message.offset_id)


@given(st.binary(max_size=60))
def test_whatever_is_stored_becomes_a_line(properties: bytes) -> None:
    line = line_of(stored(b"UNIQ_KEY\x01A\x02" + properties))
    text = (b"UNIQ_KEY\x01A\x02" + properties).decode("utf-8", "replace")
    assert line["properties"] == decode_properties(text)


@given(st.binary(min_size=1, max_size=200))
def test_bodies_come_back_byte_for_byte(body: bytes) -> None:
    for form in (BodyForm.TEXT, BodyForm.BASE64):
        (text,) = encoder(form)([stored(b"UNIQ_KEY\x01A", body)]).splitlines()
        (line,) = messages_of(text)
        assert line.body == body


def test_a_body_that_is_nested_deeper_than_can_be_written_stays_text() -> None:
    body = b"[" * 400 + b"]" * 400
    line = line_of(stored(b"UNIQ_KEY\x01A", body), BodyForm.JSON)
    assert (line["body"].encode(), line["bodyEncoding"]) == (body, "utf-8")


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b'{"n":12345678901234567890123}', "json"),
        (b'{"a":1,"a":2}', "utf-8"),
        (b'{"n":0.1000000000000000055511151231257827}', "utf-8"),
    ],
)
def test_what_json_says_comes_back_digit_by_digit(body: bytes, encoding: str) -> None:
    line = encoder(BodyForm.JSON)([stored(b"UNIQ_KEY\x01A", body)])
    assert json.loads(line)["bodyEncoding"] == encoding
    assert messages_of(line)[0].body == body


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ('"body":%s,"bodyEncoding":"json"' % ("[" * 400 + "]" * 400), "cannot be written as JSON"),
        ('"body":"x","flag":2147483648', "not a number of 32 bits"),
        ('"body":"x","flag":-2147483649', "not a number of 32 bits"),
    ],
)
def test_what_no_message_can_have_is_the_fault_of_its_line(values: str, why: str) -> None:
    with pytest.raises(MalformedLine, match=why):
        messages_of(b"{%b}" % values.encode())
