"""Lines in pieces are those that are made whole."""

import orjson
import pytest

from mq.client.operations.messages.json_bodies import MOST_JSON
from mq.client.operations.messages.lines import BodyForm, encoder
from mq.client.operations.messages.long_lines import LONG, LongLine, long_encoder, pieces_of
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
    assert orjson.loads(b"".join(long))["body"] == "\0" * (LONG + 1)


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
