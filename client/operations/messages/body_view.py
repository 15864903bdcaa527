"""Views of message bodies: text, indented JSON, or a hex dump, truncated if long.

A body is data: nothing here executes it, follows links in it, or trusts it.
"""

import re
from codecs import getincrementaldecoder
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from mq.client.operations.messages import documents
from mq.protocol.compression import CompressionType
from mq.protocol.flags import SysFlag

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage

SHOWN = 64 * 1024  # bytes of a body that are shown as text, or characters as JSON
SHOWN_AS_HEX = 16 * 1024  # bytes: each takes five characters
# Bytes of a body that are parsed as JSON: parsed, they take up to thirty times as much memory.
MOST_JSON = 1024 * 1024
_HEX_ROW = 16
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class BodyView:
    """A body, in one form.

    `form` is text, json or hex, and `text` is the body in that form; if `is_cut`, only its start.
    `size` is the body's size in bytes, decompressed; `codec` is its compression: none, zlib, lz4,
    zstd. `is_utf8` and `is_json` refer to the whole body; a body over MOST_JSON is not parsed as
    JSON. `problem` is the reason why the body is shown as stored.
    """

    form: str
    text: str
    size: int
    shown: int
    is_cut: bool
    is_utf8: bool
    is_json: bool
    codec: str
    problem: str = ""


def codec_of(sys_flag: int) -> str:
    """Return the compression of a body, from the flags of its message."""
    if not sys_flag & SysFlag.COMPRESSED:
        return "none"
    kind = (sys_flag & SysFlag.COMPRESSION_MASK) >> SysFlag.COMPRESSION_SHIFT
    try:
        return CompressionType(kind or CompressionType.ZLIB).name.lower()
    except ValueError:
        return f"unknown ({kind})"


def view(message: "StoredMessage", form: str | None = None) -> BodyView:
    """Return the body of a message as text, json or hex; without `form` as the first valid one of
    json, text and hex.
    """
    body = bytes(message.body)
    is_utf8 = documents.is_utf8(body)
    is_json = is_utf8 and _is_json(body)
    if form is None:
        form = "json" if is_json else "text" if is_utf8 else "hex"
    if form == "json" and not is_json:
        form = "text"
    if form == "json":
        text, is_cut = indented(body.decode(), SHOWN)
        shown = len(text)
    elif form == "text":
        text, is_cut = _text(body), len(body) > SHOWN
        shown = min(len(body), SHOWN)
    else:
        form, text, is_cut = "hex", hex_dump(body[:SHOWN_AS_HEX]), len(body) > SHOWN_AS_HEX
        shown = min(len(body), SHOWN_AS_HEX)
    return BodyView(
        form,
        text,
        len(body),
        shown,
        is_cut,
        is_utf8,
        is_json,
        codec_of(message.sys_flag),
        message.body_error,
    )


def first_line(body: bytes, size: int = 120) -> str:
    """Return the start of a body for a list; in hex if it is not UTF-8."""
    part = body[:size]
    decoder = getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(part, final=len(body) <= size)
    except UnicodeDecodeError:
        return part[: size // 3].hex(" ")


def _is_json(body: bytes) -> bool:
    """Whether a body is a JSON object or array: a bare number is shown as text."""
    if len(body) > MOST_JSON or body.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True


def _text(body: bytes) -> str:
    """Return the start of a text without a truncated character; U+FFFD replaces invalid bytes."""
    decoder = getincrementaldecoder("utf-8")("replace")
    return decoder.decode(body[:SHOWN], final=len(body) <= SHOWN)


_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]+')


def indented(text: str, most: int) -> tuple[str, bool]:
    """Format JSON with one value per line, about `most` characters of it; returns whether it is
    truncated.

    Tokens are unchanged: a number of 20 digits keeps them, and duplicate names are all shown.
    """
    parts: list[str] = []
    size, depth, opened = 0, 0, False
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in ("}", "]"):
            depth -= 1
            token = token if opened else "\n" + _INDENT * depth + token
            opened = False
        else:
            if opened:
                token = "\n" + _INDENT * depth + token
            opened = False
            last = token[-1]
            if last in "{[" and token.lstrip() in ("{", "["):
                depth += 1
                opened = True
            elif token == ",":
                token += "\n" + _INDENT * depth
            elif token == ":":
                token += " "
        parts.append(token)
        size += len(token)
        if size > most:
            return "".join(parts)[:most], True
    return "".join(parts), False


def hex_dump(body: bytes) -> str:
    """Return sixteen bytes per line: offset, hex, and ASCII characters."""
    lines = []
    for start in range(0, len(body), _HEX_ROW):
        row = body[start : start + _HEX_ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {shown}")
    return "\n".join(lines)
