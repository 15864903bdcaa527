"""Lines in pieces are those that are made whole."""

from base64 import b64decode

import orjson
import pytest

from mq.client.operations.messages.json_bodies import MOST_JSON
from mq.client.operations.messages.lines import LONG, LONGEST_LINE, BodyForm, encoder
from mq.client.operations.messages.long_lines import LongLine, long_encoder, pieces_of
from mq.protocol.compression import MAX_DECOMPRESSED
from mq.protocol.message import StoredMessage

LONG_TEXT = ('a, "b"\n\\ é 世 😀 \x00 \x7f \u2028' * (LONG // 16)).encode()
BODIES = [LONG_TEXT, LONG_TEXT + b"\xff", LONG_TEXT[:-1], bytes(LONG + 1)]


def message(body: bytes) -> StoredMessage:
    return StoredMessage("Topic", body, {"UNIQ_KEY": "A", "k": '"","'}, broker_name="broker-a")


@pytest.mark.parametrize("form", BodyForm)
@pytest.mark.parametrize("body", BODIES)
def test_a_long_line_is_what_it_is_of_the_whole(form: BodyForm, body: bytes) -> None:
    messages = [message(b"first"), message(body), message(body), message(b"last")]
    assert b"".join(pieces_of(long_encoder(form)(messages))) == encoder(form)(messages)


def test_a_long_line_is_made_where_it_is_written() -> None:
    lines = long_encoder(BodyForm.TEXT)([message(b"first"), message(bytes(LONG + 1))])
    (long,) = [line for line in lines if isinstance(line, LongLine)]
    assert len(long) < LONG + 1000
    assert max(map(len, long)) < LONG * 3
    assert b64decode(orjson.loads(b"".join(long))["body"]) == bytes(LONG + 1)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (bytes(LONG), "utf-8"),
        (bytes(LONG + 1), "base64"),
        (b'{"text"}' * LONG, "utf-8"),
        (b'"\\"ab' * LONG, "base64"),
    ],
)
def test_long_text_is_base64_where_that_is_shorter(body: bytes, encoding: str) -> None:
    (line,) = b"".join(pieces_of(long_encoder(BodyForm.TEXT)([message(body)]))).splitlines()
    assert orjson.loads(line)["bodyEncoding"] == encoding


@pytest.mark.parametrize("form", BodyForm)
@pytest.mark.parametrize("byte", [b"\0", b"\xff", b"a"])
def test_an_import_takes_the_longest_line_that_an_export_makes(form: BodyForm, byte: bytes) -> None:
    properties = {"UNIQ_KEY": "\x03" * 32_000}  # it is the id, too
    largest = StoredMessage("Topic", byte * MAX_DECOMPRESSED, properties, broker_name="broker-a")
    assert sum(map(len, pieces_of(long_encoder(form)([largest])))) <= LONGEST_LINE


def test_a_body_that_can_be_a_value_is_one() -> None:
    body = b"[%b1]" % (b"1," * (LONG // 2))
    assert LONG < len(body) < MOST_JSON
    (line,) = b"".join(pieces_of(long_encoder(BodyForm.JSON)([message(body)]))).splitlines()
    assert orjson.loads(line)["bodyEncoding"] == "json"


@pytest.mark.parametrize("form", BodyForm)
def test_a_long_body_that_is_as_it_was_stored_is_said_to_be_so(form: BodyForm) -> None:
    stored = message(LONG_TEXT * 20)
    stored.body_error = 'a "damaged" one'
    lines = long_encoder(form)([stored])
    assert any(isinstance(line, LongLine) for line in lines)
    whole = b"".join(pieces_of(lines))
    assert whole == encoder(form)([stored])
    assert orjson.loads(whole)["bodyError"] == 'a "damaged" one'
