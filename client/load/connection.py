"""A connection that generates load: it sends prepared frames, and decodes of each reply only what
is needed.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import orjson

from mq.protocol.frame import HEADER_LENGTH, PREFIX

# Request numbers start at 100000000, so that all frames have the same length.
OPAQUE_DIGITS = 9
FIRST_OPAQUE = 10 ** (OPAQUE_DIGITS - 1)
LAST_OPAQUE = 10**OPAQUE_DIGITS - 1
_OPAQUE = b'"opaque":'
_SUCCESS = b'"code":0,'

# Arguments: data, opaque, code (0 or -1), and the positions of header, body and end in the data.
OnReply = Callable[[bytes, int, int, int, int, int], None]


class LoadConnection(asyncio.Protocol):
    """Calls `on_reply` for each reply, and `on_lost` when the connection ends."""

    def __init__(self, on_reply: OnReply, on_lost: Callable[[], None]) -> None:
        self._on_reply = on_reply
        self._on_lost = on_lost
        self._rest = b""
        self._closed = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost()
        self._closed.set()

    async def close(self) -> None:
        """Close the connection at once; requests in flight are abandoned."""
        self.transport.abort()
        await self._closed.wait()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        on_reply = self._on_reply
        position, size = 0, len(data)
        while size - position >= 8:
            length, word = PREFIX.unpack_from(data, position)
            end = position + 4 + length
            if end > size:
                break
            header = position + 8
            body = header + (word & HEADER_LENGTH)
            at = data.find(_OPAQUE, header, body) + len(_OPAQUE)
            code = 0 if data.find(_SUCCESS, header, body) >= 0 else -1
            on_reply(data, int(data[at : at + OPAQUE_DIGITS]), code, header, body, end)
            position = end
        self._rest = data[position:]


def failure(data: bytes, header: int, body: int) -> tuple[int, str]:
    """Return the code and remark of a reply that is not a success."""
    fields = orjson.loads(data[header:body])
    return int(fields["code"]), str(fields.get("remark") or "")
