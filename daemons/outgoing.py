"""The writing half of a connection: data sent in one turn of the event loop leaves in one write.

Replies to requests that have just been read are joined until all of them have been served.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from mq.daemons.memory import MemoryBudget
from mq.protocol.command import Command
from mq.protocol.frame import encode

# Limit in bytes of joined replies to requests that arrived together.
_JOINED = 256 * 1024


class Transport(Protocol):
    """The connection that a channel writes to: a transport of the event loop or a TlsConnection."""

    def write(self, data: bytes | memoryview) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_write_buffer_size(self) -> int: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class Outgoing:
    """The data sent to one peer. ``budget`` counts the written bytes, because the peer may not read
    them.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self.closed = False
        self._ended = False  # by this process
        self._budget = budget
        self._transport: Transport | None = None
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0  # bytes that were sent in parts
        self._reading = False  # inside data_received: replies are joined and written at its end
        self._flushes_soon = False  # other data is written at the end of the turn

    def send(self, command: Command) -> None:
        """Send a command; it is written with other data of this turn of the event loop."""
        self._out.append(encode(command))
        self._out_bytes += len(command.body)
        if self._out_bytes > _JOINED:
            self.flush()
        elif not self._reading and not self._flushes_soon:
            self._flushes_soon = True
            asyncio.get_running_loop().call_soon(self._flush_late)

    def _flush_late(self) -> None:
        self._flushes_soon = False
        self.flush()

    def send_frame(self, frame: bytes | memoryview) -> None:
        """Send bytes that are a whole frame, or the next part of one."""
        self._out.append(frame)
        if not self._reading:
            self.flush()

    def queue_frame(self, frame: bytes | memoryview) -> None:
        """Like send_frame, for a caller that sends many and calls flush itself."""
        self._out.append(frame)

    def send_parts(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """Send a frame that consists of several parts, about `size` bytes, without joining them
        twice.
        """
        self._out += parts
        self._out_bytes += size
        if not self._reading or self._out_bytes > _JOINED:
            self.flush()

    def flush(self) -> None:
        """Write the queued data."""
        out = self._out
        if not out:
            return
        self._out = []
        self._out_bytes = 0
        if self.closed or self._transport is None:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        self._transport.write(data)
        budget = self._budget
        budget.left -= len(data)
        if budget.left < 0:
            budget.look()

    @property
    def unsent(self) -> int:
        """Bytes that the peer has not received yet."""
        if self.closed or self._transport is None:
            return 0
        return self._transport.get_write_buffer_size()

    @property
    def ended(self) -> bool:
        """Whether this process has closed it: further data of the peer is not served."""
        return self._ended

    def close(self) -> None:
        """Close after the sent data has been written. Idempotent."""
        self._ended = True
        if self._transport is not None and not self._transport.is_closing():
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once, dropping unsent data."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()
