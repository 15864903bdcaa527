"""Replies that are written often: their frames with gaps where values go.

A template writes what `frame.encode` writes of the same reply, of which it is made, in a third of
the time: the header as JSON is put together once, and a reply fills the gaps.
"""

import re
from collections.abc import Mapping

from mq.protocol.command import RESPONSE, Command
from mq.protocol.frame import PREFIX, encode

_GAPS = re.compile(rb"(%%|%016X|%d|%s)")
# Stands for the opaque until the text is cut: no other number of a header has so many digits.
_OPAQUE = -2_147_483_647


class ReplyTemplate:
    """A reply in JSON with a code, a remark, and fields whose values come later.

    `fields` are by name what the value of each looks like: text with `%d`, `%X` or, for bytes that
    need no escape in JSON, `%s`.
    """

    __slots__ = ("_header",)

    def __init__(
        self, code: int, fields: Mapping[str, str] | None = None, remark: str | None = None
    ) -> None:
        reply = Command(code, dict(fields or {}), flag=RESPONSE, opaque=_OPAQUE, remark=remark)
        if remark is not None:
            reply.remark = remark.replace("%", "%%")
        header = encode(reply)[PREFIX.size :]
        # With its name, which no text in the header can hold: its quotes would be escaped.
        self._header = header.replace(b'"opaque":%d' % _OPAQUE, b'"opaque":%d')

    def frame(self, *values: int | bytes, body_size: int = 0) -> bytes:
        """The frame but for its body: values of the fields in their order, then the opaque."""
        header = self._header % values
        size = len(header)
        return PREFIX.pack(4 + size + body_size, size) + header

    def pieces(self) -> list[bytes]:
        """What stands around the gaps."""
        found = [b""]
        for token in _GAPS.split(self._header):
            if token == b"%%":
                found[-1] += b"%"
            elif _GAPS.fullmatch(token):
                found.append(b"")
            else:
                found[-1] += token
        return found

    def around_opaque(self) -> tuple[bytes, bytes]:
        """The header before and behind the opaque, of a reply without fields."""
        start, _, end = self._header.partition(b"%d")
        return start % (), end % ()
