"""The writing half of a connection: what is sent in one turn leaves in one write.

What answers requests that have just been read is joined until all of them have been served.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from mq.daemons.memory import MemoryBudget
from mq.protocol.command import Command
from mq.protocol.frame import encode

# Replies to requests that came together are joined up to this size, then they leave.
_JOINED = 256 * 1024


class Transport(Protocol):
    """What a channel writes to: a transport of the event loop, or a TLS connection upon it."""

    def write(self, data: bytes | memoryview) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def get_write_buffer_size(self) -> int: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class Outgoing:
    """What is sent to one peer. ``budget`` counts what leaves: the peer may not take it."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.closed = False
        self._ended = False  # by us
        self._budget = budget
        self._transport: Transport | None = None
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0  # of those that were sent in parts
        self._reading = False  # inside data_received: replies are joined and leave at its end
        self._flushes_soon = False  # those that are made elsewhere leave at the end of the turn

    def send(self, command: Command) -> None:
        """Send a command; it leaves with what else is sent in this turn of the loop."""
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
        twice."""
        self._out += parts
        self._out_bytes += size
        if not self._reading or self._out_bytes > _JOINED:
            self.flush()

    def flush(self) -> None:
        """Write what has been queued."""
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
        """Bytes that the peer has not taken yet."""
        if self.closed or self._transport is None:
            return 0
        return self._transport.get_write_buffer_size()

    @property
    def ended(self) -> bool:
        """Whether we have closed it: what its peer sends is not served any more."""
        return self._ended

    def close(self) -> None:
        """Close once what was sent has left. Calling it again does nothing."""
        self._ended = True
        if self._transport is not None and not self._transport.is_closing():
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is not sent yet."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()
