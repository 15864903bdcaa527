"""Messages as lines of JSON, and back.

    {"messageId":"7F00…","topic":"Orders","brokerName":"broker-a","queueId":0,"queueOffset":17,
     "bornTimestamp":…,"bornHost":"10.0.0.7:41234","storeTimestamp":…,"storeHost":"10.0.0.5:10911",
     "flag":0,"sysFlag":0,"reconsumeTimes":0,"properties":{"TAGS":"new",…},
     "body":"…","bodyEncoding":"utf-8"}

on one line. Times are in ms since 1970. `bodyEncoding` is utf-8, base64, or json: then `body` is
the value itself, and its layout (blanks, the format of numbers) is not preserved. A body that could
not be decompressed is as it was stored, and `bodyError` gives the reason.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Any

import orjson

from mq.client.operations.messages import json_bodies
from mq.protocol.compression import MAX_DECOMPRESSED
from mq.protocol.host import address_text, host_text
from mq.protocol.message import Message, StoredMessage
from mq.protocol.properties import (
    KEY_SEPARATOR,
    PropertyKey,
    has_separator,
)


class BodyForm(Enum):
    """How bodies are written: text is base64 if it is not UTF-8, or is long and shorter that way;
    json is text unless it is JSON that a value preserves (`json_bodies`).
    """

    TEXT = "text"
    BASE64 = "base64"
    JSON = "json"


# Bytes of a body from which its line is written in pieces (`long_lines`).
LONG = 256 * 1024
# The limit of a line without its body: properties have at most 32 KB, a byte may take six
# characters in JSON, and the message's id occurs twice.
MOST_BESIDE = 512 * 1024


def is_short_text(json_bytes: int, body_bytes: int) -> bool:
    """Whether a body may be written as text with this length in JSON. A long body is base64 if that
    is shorter: zeros take six times their length as text, and no import would accept the line.
    """
    return body_bytes <= LONG or json_bytes <= _base64_bytes(body_bytes)


def _base64_bytes(body_bytes: int) -> int:
    return (body_bytes + 2) // 3 * 4


# The longest line that an export writes and an import accepts: with the largest body that is
# decompressed.
LONGEST_LINE = _base64_bytes(MAX_DECOMPRESSED) + MOST_BESIDE


class MalformedLine(ValueError):
    """A line that is not a message. The text gives the reason."""


# Properties that become JSON by replacing separators with quotes: each has a name and a value, and
# no character needs an escape. Nearly all do.
_PLAIN = re.compile(
    rb'(?:[^"\\\x00-\x1f]+\x01[^"\\\x00-\x1f]+\x02)*[^"\\\x00-\x1f]+\x01[^"\\\x00-\x1f]+\x02?'
).fullmatch
_UNIQUE = "UNIQ_KEY\x01"


def encoder(form: BodyForm) -> Callable[[Iterable[StoredMessage]], bytes]:
    """Return a function that encodes messages as lines: the hot path of an export.

    A dict for each message and orjson for all of it takes twice as long as this code, which uses
    orjson only for the body.
    """
    body_of = {
        BodyForm.TEXT: _text_body,
        BodyForm.BASE64: _base64_body,
        BodyForm.JSON: _json_body,
    }[form]
    hosts = _Hosts()
    last: tuple[Any, ...] = ()
    place = store = ""

    def encode(messages: Iterable[StoredMessage]) -> bytes:
        nonlocal last, place, store
        parts: list[bytes] = []
        for message in messages:
            here = (
                message.topic,
                message.broker_name,
                message._store_address,
                message._store_port,
            )
            if here != last:  # nearly always the same for all messages of a queue
                last = here
                topic, broker = _json_text(message.topic), _json_text(message.broker_name)
                place = f'"topic":{topic},"brokerName":{broker}'
                store = hosts[here[2], here[3]]
            message_id, properties = _quick_properties(message) or _properties(message)
            head = (
                f'{{"messageId":{message_id},{place},"queueId":{message.queue_id},'
                f'"queueOffset":{message.queue_offset},'
                f'"bornTimestamp":{message.born_timestamp},'
                f'"bornHost":"{hosts[message._born_address, message._born_port]}",'
                f'"storeTimestamp":{message.store_timestamp},"storeHost":"{store}",'
                f'"flag":{message.flag},"sysFlag":{message.sys_flag},'
                f'"reconsumeTimes":{message.reconsume_times},"properties":{properties},"body":'
            )
            body = body_of(message.body) if not message.body_error else _stored_body(message)
            parts += (head.encode(), *body)
        return b"".join(parts)

    return encode


class _Hosts(dict[tuple[bytes, int], str]):
    """Addresses as text, each formatted once: few producers send all messages."""

    def __missing__(self, key: tuple[bytes, int]) -> str:
        if len(self) > 10_000:
            self.clear()
        text = self[key] = address_text((host_text(key[0]), key[1]))
        return text


def _quick_properties(message: StoredMessage) -> tuple[str, str] | None:
    """Return the message's id and properties as JSON; None if they need more than quotes."""
    stored = message._properties_bytes
    if message._properties is not None or _PLAIN(stored) is None:
        return None
    try:
        text = stored.decode()
    except UnicodeDecodeError:
        return None
    begin = text.rfind(_UNIQUE)  # of two equal names the last one counts
    if begin < 0 or (begin and text[begin - 1] != "\x02"):
        return None
    if text[-1] == "\x02":
        text = text[:-1]
    end = text.find("\x02", begin)
    unique = text[begin + len(_UNIQUE) : end] if end >= 0 else text[begin + len(_UNIQUE) :]
    quoted = text.replace("\x01", '":"').replace("\x02", '","')
    return f'"{unique}"', f'{{"{quoted}"}}'


def _properties(message: StoredMessage) -> tuple[str, str]:
    """Return the message's id and properties as JSON."""
    return _json_text(message.message_id), orjson.dumps(message.properties).decode()


def _json_text(text: str) -> str:
    return orjson.dumps(text).decode()


# The JSON of a body, and the rest of the line after it.
Body = tuple[bytes, bytes]


def _text_body(body: bytes) -> Body:
    try:
        text = orjson.dumps(body.decode())
    except UnicodeDecodeError:
        return _base64_body(body)
    if is_short_text(len(text) - 2, len(body)):
        return text, b',"bodyEncoding":"utf-8"}\n'
    return _base64_body(body)


def _base64_body(body: bytes) -> Body:
    return b'"%b"' % b64encode(body), b',"bodyEncoding":"base64"}\n'


def _stored_body(message: StoredMessage) -> Body:
    """Encode a body that could not be decompressed."""
    return _base64_body(message.body)[0], stored_tail(message.body_error)


def stored_tail(error: str) -> bytes:
    """Return the end of a line after a body that is as stored."""
    return b',"bodyEncoding":"base64","bodyError":%b}\n' % orjson.dumps(error)


def _json_body(body: bytes) -> Body:
    try:
        return json_bodies.dumps(json_bodies.value_of(body)), b',"bodyEncoding":"json"}\n'
    except ValueError:
        return _text_body(body)


_BESIDE = frozenset(("headers", "keys", "tags"))  # properties that have fields of their own


class Line:
    """The message in a line: its source and its content.

    Lines written by hand may have tags, keys and user properties (`headers`) outside `properties`,
    which takes precedence, and a `delay`: a level, or a text with a duration or a time.
    """

    __slots__ = ("body", "broker_name", "delay", "flag", "properties", "queue_id", "topic")

    def __init__(self, values: Any) -> None:
        """Parse the fields. Raises MalformedLine."""
        if not isinstance(values, dict):
            raise MalformedLine("not a JSON object")
        self.topic: str = _typed(values, "topic", str, "")
        self.broker_name: str = _typed(values, "brokerName", str, "")
        self.queue_id: int | None = (
            None if values.get("queueId") is None else _typed(values, "queueId", int)
        )
        self.flag: int = _typed(values, "flag", int, 0)
        if not -(2**31) <= self.flag < 2**31:
            raise MalformedLine(f"flag {self.flag} is not a number of 32 bits")
        self.delay: int | str | None = values.get("delay")
        if type(self.delay) not in (int, str, type(None)):
            raise MalformedLine("delay is neither a level nor a text")
        self.properties: dict[str, str] = _typed(values, "properties", dict, {})
        if not _BESIDE.isdisjoint(values):
            self.properties = _beside(values) | self.properties
        for name, value in self.properties.items():
            if not isinstance(value, str):
                raise MalformedLine(f"property {name!r} is not text")
            if has_separator(name + value):
                raise MalformedLine(f"property {name!r} has a character that separates properties")
        self.body = _body(values)


# Matches an integer that orjson would read as a double, and some others.
_DIGITS = re.compile(rb"\d{19}").search


def messages_of(line: bytes) -> list[Line]:
    """Return the messages of a line: one, or those of a document printed by `-o json`.

    Raises MalformedLine.
    """
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise MalformedLine(f"not JSON: {error.msg}") from None
    if b'"json"' in line and _DIGITS(line):  # perhaps in a body
        with suppress(ValueError):  # more digits than Python reads
            values = json_bodies.with_integers(line)
    if isinstance(values, dict) and "version" in values and isinstance(values.get("data"), list):
        return [Line(item) for item in values["data"]]
    return [Line(values)]


def _beside(values: dict[str, Any]) -> dict[str, Any]:
    """Return the properties that are fields of their own."""
    found: dict[str, Any] = dict(_typed(values, "headers", dict, {}))
    keys = values.get("keys")
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        keys = KEY_SEPARATOR.join(keys)
    for name, value in ((PropertyKey.TAGS, values.get("tags")), (PropertyKey.KEYS, keys)):
        if value is not None:
            found[name] = value
    return found


def _typed(values: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = values.get(name)
    if value is None:
        value = default
    if type(value) is not kind:
        raise MalformedLine(
            f"{name} is missing" if value is None else f"{name} is no {kind.__name__}"
        )
    return value


def _body(values: dict[str, Any]) -> bytes:
    if "body" not in values:
        raise MalformedLine("body is missing")
    if error := values.get("bodyError"):  # the copy would not be marked as compressed
        raise MalformedLine(f"its body is as it was stored: {error}")
    body, encoding = values["body"], values.get("bodyEncoding", "utf-8")
    if encoding == "json":
        try:
            return json_bodies.dumps(body)
        except ValueError as error:
            raise MalformedLine(f"body cannot be written as JSON: {error}") from None
    if not isinstance(body, str):
        raise MalformedLine("body is not text")
    if encoding == "base64":
        try:
            return b64decode(body, validate=True)
        except (Base64Error, ValueError) as error:
            raise MalformedLine(f"body is not base64: {error}") from None
    if encoding != "utf-8":
        raise MalformedLine(f"bodyEncoding {encoding!r} is not utf-8, base64 or json")
    return body.encode()


# Of the properties that RocketMQ uses, those that belong to the message itself. The others describe
# its processing in the original cluster: past delays, retries, transactions, timers, the client
# that waited for a reply. A copy with them would be delayed, retried or answered again.
_KEPT = frozenset(
    {
        PropertyKey.KEYS,
        PropertyKey.TAGS,
        PropertyKey.UNIQUE_KEY,
        PropertyKey.SHARDING_KEY,
        PropertyKey.TRACE_CONTEXT,
        PropertyKey.INSTANCE_ID,
        PropertyKey.BUYER_ID,
    }
)
DROPPED = frozenset(value for name, value in vars(PropertyKey).items() if name.isupper()) - _KEPT


def message_again(
    topic: str, body: bytes, flag: int, properties: dict[str, str], *, new_id: bool = False
) -> Message:
    """Create a new message that copies a stored one.

    It keeps the user's properties, tags, keys, sharding key and, unless `new_id`, its unique id.
    """
    message = Message(topic, body, flag=flag)
    kept = {name: value for name, value in properties.items() if name not in DROPPED}
    if new_id:
        kept.pop(PropertyKey.UNIQUE_KEY, None)
    # `system` accepts any name, and keeps keys unchanged.
    message.system = kept
    return message


def has_key(message: StoredMessage, key: str) -> bool:
    """Whether `key` is one of the message's keys, or its unique id."""
    properties = message.properties
    return key in properties.get("KEYS", "").split(KEY_SEPARATOR) or key == properties.get(
        "UNIQ_KEY"
    )
