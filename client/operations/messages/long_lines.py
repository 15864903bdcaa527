"""Lines of messages with long bodies, created in pieces while they are written.

A body of zeros, sent as 60 KB, may be 60 MB when decompressed.
"""

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING

import orjson

from mq.client.operations.messages import documents
from mq.client.operations.messages.json_bodies import MOST_JSON
from mq.client.operations.messages.lines import LONG, BodyForm, encoder, is_short_text, stored_tail

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage

_PIECE = 96 * 1024  # bytes of a body at a time, a multiple of three for base64


class LongLine:
    """The line of one message, created each time it is iterated."""

    __slots__ = ("_body", "_error", "_form", "_head")

    def __init__(self, head: bytes, body: bytes, form: BodyForm, error: str) -> None:
        """`head` is the line up to the body; `error` is the reason why the body is as stored."""
        self._head = head
        self._body = body
        self._form = form
        self._error = error

    def __len__(self) -> int:
        """Return the bytes held in memory, not the length of the line."""
        return len(self._head) + len(self._body)

    def __iter__(self) -> Iterator[bytes]:
        as_base64 = self._form is BodyForm.BASE64 or bool(self._error)
        is_text = not as_base64 and documents.is_utf8(self._body)
        is_text = is_text and is_short_text(sum(map(len, _quoted(self._body))), len(self._body))
        yield self._head + b'"'
        yield from _quoted(self._body) if is_text else _base64(self._body)
        if self._error:
            yield b'"' + stored_tail(self._error)
        else:
            yield _tail("utf-8" if is_text else "base64")


Lines = Sequence[bytes | LongLine]  # in pieces that each end with a whole line


def long_encoder(form: BodyForm) -> "Callable[[list[StoredMessage]], Lines]":
    """Like `lines.encoder`, for bodies of any size."""
    encode = encoder(form)
    empty = b'"' + _tail("base64" if form is BodyForm.BASE64 else "utf-8")
    least = max(LONG, MOST_JSON) if form is BodyForm.JSON else LONG

    def long_line(message: "StoredMessage") -> LongLine:
        other = copy(message)
        other.body, other.body_error = b"", ""
        head = encode([other]).removesuffix(empty)
        return LongLine(head, message.body, form, message.body_error)

    def encode_all(messages: "list[StoredMessage]") -> Lines:
        found: list[bytes | LongLine] = []
        short: list[StoredMessage] = []
        for message in messages:
            if len(message.body) <= least:
                short.append(message)
                continue
            found += [encode(short), long_line(message)]
            short = []
        found.append(encode(short))
        return found

    return encode_all


def pieces_of(lines: Lines) -> Iterator[bytes]:
    """Yield the bytes of lines in pieces."""
    for line in lines:
        if isinstance(line, bytes):
            yield line
        else:
            yield from line


def _tail(encoding: str) -> bytes:
    return b'","bodyEncoding":"%b"}\n' % encoding.encode()


def _quoted(body: bytes) -> Iterator[bytes]:
    decoder = getincrementaldecoder("utf-8")()
    for piece in _pieces(body):
        yield orjson.dumps(decoder.decode(piece))[1:-1]


def _base64(body: bytes) -> Iterator[bytes]:
    return map(b64encode, _pieces(body))


def _pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), _PIECE):
        yield bytes(body[start : start + _PIECE])
