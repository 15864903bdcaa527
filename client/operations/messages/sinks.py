"""Targets of an export's lines: a stream here, a file in `file_sink`."""

import asyncio
import io
import os
import select
import stat
from typing import Any, Protocol

from mq.client.operations.messages.long_lines import Lines, pieces_of
from mq.client.operations.messages.reading import Span


class Sink(Protocol):
    """Accepts lines."""

    async def write(self, lines: Lines, count: int, spans: list[Span]) -> None:
        """Accept `count` lines. All messages before `Span.next` have been accepted then, including
        these.
        """


class StreamSink:
    """Writes lines to a stream."""

    def __init__(self, stream: Any) -> None:
        """`stream` accepts bytes or text; a text stream's byte buffer is used if it has one."""
        is_binary = isinstance(stream, io.BufferedIOBase)
        self._binary: Any = stream if is_binary else getattr(stream, "buffer", None)
        self._stream = stream
        self._pipe = _pipe_of(self._binary)
        self._turn = asyncio.Lock()

    async def write(self, lines: Lines, count: int, spans: list[Span]) -> None:
        if self._pipe is not None:
            async with self._turn:  # queues are read concurrently, and lines must stay whole
                for piece in pieces_of(lines):
                    await _write_to_pipe(self._pipe, piece)
            return
        for piece in pieces_of(lines):
            if self._binary is not None:
                self._binary.write(piece)
            else:
                self._stream.write(piece.decode())


def _pipe_of(stream: Any) -> int | None:
    """Return the descriptor of a stream that is a pipe, whose reader may be slow."""
    try:
        descriptor = int(stream.fileno())
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return None
    except (AttributeError, OSError, ValueError):
        return None
    stream.flush()
    return descriptor


async def _write_to_pipe(descriptor: int, lines: bytes) -> None:
    """Write all data without blocking the loop: signals could not end a blocking write."""
    loop = asyncio.get_running_loop()
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    rest = memoryview(lines)
    while rest:
        if not poll.poll(0):
            room = asyncio.Event()
            loop.add_writer(descriptor, room.set)
            try:
                await room.wait()
            finally:
                loop.remove_writer(descriptor)
        # A write of this size does not block if there is any room (POSIX, PIPE_BUF).
        rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]
