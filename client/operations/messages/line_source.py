"""Lines of a file, a pipe or a terminal, as they come, for an event loop that has more to do.

A thread reads, because reading a pipe blocks and no event loop can wait for a file. It is a chunk
or two ahead and no more: who writes into the pipe waits when brokers do.
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

CHUNK = 1024 * 1024  # bytes that are asked for at a time; a pipe or terminal gives what there is
AHEAD = 4  # chunks that are read and wait to be taken

Read = Callable[[int], bytes]  # up to so many bytes; none at the end


def reader_of(stream: Any) -> Read:
    """How a stream is read: at its descriptor where it has one, so that a pipe gives what is there.

    A stream of text without bytes beneath (a test's) gives its text in UTF-8.
    """
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return lambda size: _bytes(stream.read(size))
    return lambda size: os.read(descriptor, size)


def is_file(path: Path | None) -> bool:
    """Whether there is always more to read until the end; not of a pipe with a name."""
    return path is not None and not local_files.is_stream(path)


def _bytes(read: str | bytes) -> bytes:
    return read.encode() if isinstance(read, str) else read


class LineSource:
    """The lines of what `read` gives, without their ends. A context manager; an async iterator of
    lists of lines.

    An empty list says that nothing more is there at the moment: what was collected may go out. A
    file always has more until its end.
    A line of more than `longest` bytes comes cut to one more than that; the rest of it is dropped
    as it is read, so a file without an end of line cannot fill the memory.

    Attributes:
        closed: at the end, whether the last line had an end of its own.
    """

    def __init__(
        self,
        read: Read,
        *,
        longest: int,
        is_file: bool = False,
        step: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`step` is told the bytes that were taken."""
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
        # A daemon: one that waits for a terminal or a pipe must not keep the process from ending.
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
            except RuntimeError:  # the loop has ended meanwhile, and nobody waits
                return
            if not chunk or isinstance(chunk, OSError):
                return

    def end(self) -> None:
        """Give no more lines: whoever waits for one goes on at once, as at the end of the input."""
        self._ended = True
        self._news.set()

    def _take(self, chunk: bytes | OSError) -> None:
        self._chunks.append(chunk)
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """Raises OSError where reading fails."""
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
