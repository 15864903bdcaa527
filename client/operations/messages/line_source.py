"""Reads lines of a file, a pipe or a terminal as they arrive, for a busy event loop.

A thread reads, because reading a pipe blocks and an event loop cannot wait for a file. It reads
only a few chunks ahead: a process that writes into the pipe is throttled when brokers are slow.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mq.client.operations import local_files

CHUNK = 1024 * 1024  # bytes per read; a pipe or terminal returns what is available
AHEAD = 4  # chunks read in advance

Read = Callable[[int], bytes]  # reads up to a number of bytes; empty at the end


def reader_of(stream: Any) -> Read:
    """Return a function that reads a stream, through its descriptor if it has one, so that a pipe
    returns what is available.

    A text stream without a byte buffer (in tests) is read as UTF-8.
    """
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return lambda size: _bytes(stream.read(size))
    return lambda size: os.read(descriptor, size)


def is_file(path: Path | None) -> bool:
    """Whether a path can be read to its end without waiting; false for a named pipe."""
    return path is not None and not local_files.is_stream(path)


def _bytes(read: str | bytes) -> bytes:
    return read.encode() if isinstance(read, str) else read


class LineSource:
    """The lines returned by `read`, without line ends. A context manager; an async iterator of
    lists of lines.

    An empty list means that nothing more is available at the moment, so collected messages should
    be sent. For a file it is never returned before the end.

    A line of more than `longest` bytes is truncated to one byte more than that; the rest is dropped
    while reading, so a file without line ends cannot exhaust the memory.

    Attributes:
        closed: at the end, whether the last line had a line end.
    """

    def __init__(
        self,
        read: Read,
        *,
        longest: int,
        is_file: bool = False,
        step: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`step` is called with the number of bytes processed."""
        self._is_file = is_file
        self._read = read
        self._longest = longest
        self._step = step
        self._chunks: deque[bytes | OSError] = deque()
        self._room = threading.Semaphore(AHEAD)
        self._news = asyncio.Event()
        self._stopped = False
        self._ended = False
        self.closed = False

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        # A daemon: a thread that waits for a terminal or a pipe must not keep the process alive.
        threading.Thread(target=self._run, name="mq-lines", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped = True
        self._room.release()

    def _run(self) -> None:
        while True:
            self._room.acquire()
            if self._stopped:
                return
            chunk: bytes | OSError
            try:
                chunk = self._read(CHUNK)
            except OSError as error:
                chunk = error
            try:
                self._loop.call_soon_threadsafe(self._take, chunk)
            except RuntimeError:  # the loop has ended meanwhile
                return
            if not chunk or isinstance(chunk, OSError):
                return

    def end(self) -> None:
        """Stop yielding lines: a waiting iterator ends at once, as at the end of the input."""
        self._ended = True
        self._news.set()

    def _take(self, chunk: bytes | OSError) -> None:
        self._chunks.append(chunk)
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Yield lists of lines. Raises OSError if reading fails."""
        rest = bytearray()
        while True:
            if not self._chunks:
                if not self._is_file:
                    yield []
                if not self._chunks and not self._ended:
                    self._news.clear()
                    await self._news.wait()
            if self._ended:
                return
            chunk = self._chunks.popleft()
            self._room.release()
            if isinstance(chunk, OSError):
                raise chunk
            if not chunk:
                break
            self._step(len(chunk))
            first, end, others = chunk.partition(b"\n")
            rest += first[: self._longest + 1 - len(rest)]
            if not end:
                continue
            lines = [bytes(rest), *others.split(b"\n")]
            rest = bytearray(lines.pop())
            yield lines
        self.closed = not rest
        if rest:
            yield [bytes(rest)]
