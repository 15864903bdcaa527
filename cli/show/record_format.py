"""Message formats as in kcat: `--format '%T %q %o %k %s\\n'`.

`MEANINGS` describes each sign. As in kcat, a line end after a message must be part of the format.
"""

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from mq.cli.runtime.errors import UsageError
from mq.cli.show import bodies
from mq.cli.show.documents import json_quoted
from mq.cli.show.lazy import LongText, Text, pieces_of
from mq.cli.show.times import iso
from mq.protocol.host import address_text

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage

Part = Callable[["StoredMessage"], Text]


class BodyFormat(Enum):
    """The form of bodies for `--body`: auto is text if the body is UTF-8, else base64."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


class RecordFormat:
    """A format, compiled once to a list of functions.

    Raises UsageError for an unknown letter or escape.
    """

    def __init__(self, text: str, body: BodyFormat = BodyFormat.AUTO) -> None:
        self.body = body
        written = decoder(body)

        def body_part(message: "StoredMessage") -> Text:
            return written(message.body)

        self._parts: list[str | Part] = _compile(text, body_part)
        self.has_bodies = body_part in self._parts

    def __call__(self, message: "StoredMessage", clean: Callable[[str], str] = str) -> str:
        """Return the formatted message; its own text, not the format's, is passed through
        `clean`."""
        return "".join(self.pieces(message, clean))

    def pieces(self, message: "StoredMessage", clean: Callable[[str], str] = str) -> Iterator[str]:
        """Yield the same in pieces: a body may be long."""
        for part in self._parts:
            if isinstance(part, str):
                yield part
            else:
                yield from map(clean, pieces_of(part(message)))


def decoder(body: BodyFormat) -> Callable[[bytes], Text]:
    """Return the converter of bodies to text; invalid UTF-8 becomes � in text and JSON."""
    return _DECODERS[body]


def value_of(data: bytes, body: BodyFormat) -> tuple[Any, str]:
    """Return a body as a JSON value, and the name of its form."""
    if body is BodyFormat.JSON:
        try:
            return _value(data), "json"
        except ValueError:
            return bodies.decoded(data, "utf-8"), "utf-8"
    if body is BodyFormat.AUTO:
        return bodies.text_of(data)
    return decoder(body)(data), "utf-8" if body is BodyFormat.TEXT else body.value


def _json(data: bytes) -> Text:
    """Return JSON in one line, whatever its layout; a body that is not JSON as a JSON string."""
    from mq.client.operations.messages import json_bodies

    try:
        return json_bodies.dumps(_value(data)).decode()
    except ValueError:
        text = bodies.decoded(data, "utf-8")
        quoted = LongText(lambda: json_quoted(text))
        return quoted if isinstance(text, LongText) else str(quoted)


def _value(data: bytes) -> Any:
    """Return the JSON value of a body.

    Raises ValueError if it is not JSON that can be written back unchanged, or is over MOST_JSON.
    """
    from mq.client.operations.messages import json_bodies

    if len(data) > json_bodies.MOST_JSON:  # invalid UTF-8 takes three bytes for each
        raise ValueError
    return json_bodies.value_of(bytes(data).decode("utf-8", "replace").encode())


_DECODERS: dict[BodyFormat, Callable[[bytes], Text]] = {
    BodyFormat.AUTO: lambda data: bodies.text_of(data)[0],
    BodyFormat.TEXT: lambda data: bodies.decoded(data, "utf-8"),
    BodyFormat.JSON: _json,
    BodyFormat.HEX: bodies.hexadecimal,
    BodyFormat.BASE64: bodies.base64,
}


_LETTERS: dict[str, Part] = {
    "t": lambda message: message.topic,
    "q": lambda message: str(message.queue_id),
    "p": lambda message: str(message.queue_id),
    "o": lambda message: str(message.queue_offset),
    "k": lambda message: message.properties.get("KEYS", ""),
    "K": lambda message: _size(message.properties.get("KEYS")),
    "g": lambda message: message.properties.get("TAGS", ""),
    "i": lambda message: message.message_id,
    "I": lambda message: message.offset_id,
    "S": lambda message: str(len(message.body)),
    "T": lambda message: str(message.store_timestamp),
    "B": lambda message: str(message.born_timestamp),
    "D": lambda message: iso(message.store_timestamp) or "",
    "h": lambda message: ",".join(f"{key}={value}" for key, value in message.properties.items()),
    "H": lambda message: address_text(message.born_host),
    "n": lambda message: message.broker_name,
    "r": lambda message: str(message.reconsume_times),
}

MEANINGS = {
    "%t": "Topic name.",
    "%q": "Queue id.",
    "%p": "Queue id: the partition of kcat.",
    "%o": "Offset in the queue.",
    "%k": "Keys, separated by blanks.",
    "%K": "Size of the keys in bytes, -1 without keys.",
    "%b": "Body, in the form of --body.",
    "%s": "The same as %b, as in kcat.",
    "%S": "Size of the body in bytes.",
    "%T": "Store time in milliseconds since 1970.",
    "%D": "Store time in UTC, ISO 8601.",
    "%B": "Born time in milliseconds since 1970.",
    "%h": "Properties as name=value, separated by commas.",
    "%P{name}": "One property; empty if the message does not have it.",
    "%g": "Tag of the message.",
    "%i": "Message id: the unique id of the producer, else the offset id.",
    "%I": "Offset id.",
    "%n": "Name of the broker.",
    "%H": "Born host of the message.",
    "%r": "Number of failed deliveries.",
    "%%": "A percent sign.",
    "\\n \\t \\r \\0 \\\\ \\xHH": "As in C: end of line, tab, return, zero, backslash, a code.",
}

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}

_TOKEN = re.compile(
    r"%P\{(?P<property>[^}]*)\}|%(?P<letter>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)"
    r"|(?P<text>[^%\\]+)",
    re.DOTALL,
)


def _compile(text: str, body: Part) -> list[str | Part]:
    parts: list[str | Part] = []
    for token in _TOKEN.finditer(text):
        kind, value = token.lastgroup, token.group(token.lastgroup or 0)
        if kind == "text":
            parts.append(value)
        elif kind == "property":
            parts.append(_property(value))
        elif kind == "hex":
            parts.append(chr(int(value, 16)))
        elif kind == "escape":
            parts.append(_known(_ESCAPES, value, f"\\{value}"))
        elif value in ("b", "s"):
            parts.append(body)
        else:
            parts.append("%" if value == "%" else _known(_LETTERS, value, f"%{value}"))
    return parts


def _known(table: dict[str, Any], key: str, shown: str) -> Any:
    try:
        return table[key]
    except KeyError:
        raise UsageError(
            f"--format: {shown!r} is unknown",
            hint="letters: " + " ".join(f"%{letter}" for letter in [*_LETTERS, "b", "P{name}"]),
        ) from None


def _property(name: str) -> Part:
    return lambda message: message.properties.get(name, "")


def _size(text: str | None) -> str:
    return "-1" if text is None else str(len(text.encode()))
