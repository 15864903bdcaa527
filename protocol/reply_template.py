"""Templates of frequent replies: frames with gaps for values.

A template writes the same bytes as `frame.encode`, from which it is derived, in a third of the
time: the JSON header is built once, and a reply fills the gaps.
"""

import re
from collections.abc import Mapping

from mq.protocol.command import RESPONSE, Command
from mq.protocol.frame import PREFIX, encode

_GAPS = re.compile(rb"(%%|%016X|%d|%s)")
# A placeholder for the opaque: no other number in a header has as many digits.
_OPAQUE = -2_147_483_647


class ReplyTemplate:
    """A JSON reply with a code, a remark, and fields whose values are given later.

    `fields` maps names to formats of the values: text with `%d`, `%X` or, for bytes that need no
    escape in JSON, `%s`.
    """

    __slots__ = ("_header",)

    def __init__(
        self, code: int, fields: Mapping[str, str] | None = None, remark: str | None = None
    ) -> None:
        reply = Command(code, dict(fields or {}), flag=RESPONSE, opaque=_OPAQUE, remark=remark)
        if remark is not None:
            reply.remark = remark.replace("%", "%%")
        header = encode(reply)[PREFIX.size :]
        # Including its name, which no text in the header can contain, because quotes are escaped.
        self._header = header.replace(b'"opaque":%d' % _OPAQUE, b'"opaque":%d')

    def frame(self, *values: int | bytes, body_size: int = 0) -> bytes:
        """Return the frame without its body: values of the fields in order, then the opaque."""
        header = self._header % values
        size = len(header)
        return PREFIX.pack(4 + size + body_size, size) + header

    def pieces(self) -> list[bytes]:
        """Return the pieces around the gaps."""
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
        """Return the header before and after the opaque, for a reply without fields."""
        start, _, end = self._header.partition(b"%d")
        return start % (), end % ()
