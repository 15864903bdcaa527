"""Bodies as text. A long one is a text in pieces, with the same characters as the whole."""

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from mq.cli.show.lazy import PIECE, LongText, Text, converted
from mq.client.operations.messages import documents

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage


def body_text(message: "StoredMessage") -> tuple[Text, str]:
    """Return the body as text, and its encoding: utf-8 or base64."""
    return text_of(message.body)


def text_of(body: bytes) -> tuple[Text, str]:
    """Return a body as text, and its encoding: utf-8 or base64."""
    if len(body) <= PIECE:
        return documents.text_of(body)
    if documents.is_utf8(body):
        return decoded(body, "utf-8"), "utf-8"
    return base64(body), "base64"


def decoded(body: bytes, charset: str) -> Text:
    """Return the body decoded with a character set; invalid bytes become U+FFFD."""
    if len(body) <= PIECE:
        return bytes(body).decode(charset, "replace")
    return LongText(partial(_decoded, body, charset))


# Python decodes these differently in pieces than as a whole: without a byte order mark, or with
# invalid sequences.
_WHOLE = ("utf-16", "utf-32", "unicode-escape", "raw-unicode-escape", "punycode", "idna")


def _decoded(body: bytes, charset: str) -> Iterator[str]:
    if charset in _WHOLE or charset.startswith("iso2022"):
        yield body.decode(charset, "replace")
        return
    decoder = getincrementaldecoder(charset)("replace")
    for piece in _pieces(body):
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def base64(body: bytes) -> Text:
    """Return the body in base64."""
    return _by_piece(body, lambda piece: b64encode(piece).decode())


def hexadecimal(body: bytes) -> Text:
    """Return the body in hex."""
    return _by_piece(body, bytes.hex)


def signed_bytes(body: bytes) -> Text:
    """Return Arrays.toString of the body, whose bytes are signed in Java."""
    if len(body) <= PIECE:
        return f"[{_signed(body)}]"
    return LongText(partial(_signed_array, body))


def _signed_array(body: bytes) -> Iterator[str]:
    begin = "["
    for text in converted(_pieces(body), _signed):
        yield begin
        yield text
        begin = ", "
    yield "]"


_SIGNED = [str(byte - 256 if byte > 127 else byte) for byte in range(256)]


def _signed(piece: bytes) -> str:
    return ", ".join([_SIGNED[byte] for byte in piece])


def _by_piece(body: bytes, convert: Callable[[bytes], str]) -> Text:
    if len(body) <= PIECE:
        return convert(bytes(body))
    return LongText(lambda: converted(_pieces(body), convert))


def _pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), PIECE):
        yield bytes(body[start : start + PIECE])
