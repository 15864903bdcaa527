"""Writes the messages of a topic to a file of JSON lines; an interrupted export can be resumed.

While an export to FILE runs, its lines are in FILE.part and its progress in FILE.state: for each
queue the next offset and the end, how many bytes and messages of FILE.part are valid, and the gaps
so far, so that a resumed export reports them too. A queue that could not be queried yet has no
offsets, and counts as missing until it can be. The state is written every few seconds, after the
bytes that it counts are on the disk. At the end FILE.part becomes FILE.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from mq.client.operations import local_files
from mq.client.operations.errors import NextStep, OperationError
from mq.client.operations.messages.choice import is_same
from mq.client.operations.messages.long_lines import Lines, LongLine, pieces_of
from mq.client.operations.messages.reading import Span
from mq.client.operations.messages.resumable import SAVE_SECONDS, all_gaps, unreadable

CHUNK = 4 * 1024 * 1024  # bytes passed to the writing thread at a time
MOST_WAITING = 3 * CHUNK  # bytes that may wait for the disk, plus one chunk
SYNC_BYTES = 64 * 1024 * 1024  # bytes written between two fsyncs at most

# By queue: the next offset and the end, and the offset and store time of a message that was read.
# The latter two are missing if nothing was read yet, all four if the queue was not queried yet.
Positions = dict[str, list[int]]


def _joined(lines: list[bytes | LongLine]) -> Lines:
    """Join consecutive lines that are bytes."""
    found: list[bytes | LongLine] = []
    for is_made, together in groupby(lines, lambda line: isinstance(line, bytes)):
        run = list(together)
        found += [b"".join(pieces_of(run))] if is_made else run
    return found


class _Good(NamedTuple):
    """The valid content: bytes, messages, the position of each queue, and the gaps so far."""

    size: int
    messages: int
    positions: Positions
    gaps: list[str]


class Cut(NamedTuple):
    """What an interrupted export left: its files, and the number of messages in the state."""

    part: Path
    state: Path
    messages: int


def cut(path: Path) -> Cut | None:
    """Return what an interrupted export to `path` left that can be resumed, if anything."""
    import orjson

    part, state = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.state")
    try:
        messages = int(orjson.loads(state.read_bytes())["messages"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return Cut(part if part.exists() else path, state, messages)


class FileSink:
    """Writes lines to FILE.part, with a state next to it. A context manager.

    A normal exit creates FILE; otherwise the files stay for `resume`, or are deleted if the disk
    has no space for them. A separate thread writes, so that disk and network work concurrently; its
    jobs run in order, so a saved state counts exactly what was written before it.
    """

    def __init__(self, path: Path, asked: dict[str, Any], *, resume: bool) -> None:
        """`asked` describes the export: only the same export can be resumed."""
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._state = path.with_name(f"{path.name}.state")
        self._asked = asked
        self._resume = resume
        self._due = time.monotonic() + SAVE_SECONDS
        self._buffer: list[bytes | LongLine] = []
        self._buffered = 0
        self._unsynced = 0
        self._count = 0  # messages accepted so far, including those of the interrupted export
        self._good = _Good(0, 0, {}, [])
        self._spans: list[Span] = []
        self._thread = ThreadPoolExecutor(1, "mq-export")
        self._jobs: deque[tuple[Future[None], int]] = deque()  # with the bytes that each one holds
        self._failed: Exception | None = None
        self.positions: Positions = {}  # of an interrupted export
        self.gaps: list[str] = []  # the gaps that it reported
        self._noted: Callable[[], list[str]] = list
        self.incomplete = False  # some queue could not be read: keep the state

    def __enter__(self) -> "FileSink":
        good = self._load() if self._resume else 0
        try:
            self._file = os.open(self._part, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                self._prepare(good)
            except BaseException:  # a shell runs many exports in one process
                os.close(self._file)
                raise
        except OSError as error:
            raise local_files.cannot("write", self._part, error) from error
        self._good = _Good(good, self._count, self.positions, self.gaps)
        return self

    def _prepare(self, good: int) -> None:
        """Truncate the file to its valid part, and continue after it."""
        os.fchmod(self._file, 0o600)  # bodies must stay as protected as at the broker
        if not self._resume:  # the state of another run would count this run's bytes
            local_files.remove(self._state)
        os.ftruncate(self._file, good)
        os.lseek(self._file, good, os.SEEK_SET)

    @property
    def written(self) -> int:
        """The number of messages written before the interruption."""
        return self._count

    def _load(self) -> int:
        """Load the state of an interrupted export; returns the valid bytes. Raises
        OperationError.
        """
        import orjson

        try:
            state = orjson.loads(self._state.read_bytes())
            asked = state["asked"]
            if not is_same(self._asked, asked):
                raise unreadable(f"{self._state} is of another export: {asked}")
            good, self._count = int(state["bytes"]), int(state["messages"])
            self.positions = {
                str(name): [int(item) for item in ends] for name, ends in state["queues"].items()
            }
            self.gaps = [str(gap) for gap in state.get("gaps", ())]
            if not {len(ends) for ends in self.positions.values()} <= {0, 2, 4}:
                raise ValueError("positions of 0, 2 or 4 numbers")
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise unreadable(f"{self._state} is not the state of an export: {error!r}") from None
        with suppress(FileNotFoundError):
            if not self._part.exists():  # the export had ended, without some queues
                self._path.replace(self._part)
        if not self._part.exists() or self._part.stat().st_size < good:
            raise unreadable(f"{self._part} is shorter than its state says")
        return good

    def begin(
        self, spans: list[Span], unread: list[str], noted: Callable[[], list[str]] = list
    ) -> None:
        """Set the spans to read, and the names of queues that could not be queried. `noted` returns
        a line for each gap so far.
        """
        self._spans = spans
        self._noted = noted
        self.positions = {name: [] for name in unread} | self.positions

    async def write(self, lines: Lines, count: int, spans: list[Span]) -> None:
        self._spans = spans
        self._count += count
        self._buffer += lines
        self._buffered += sum(map(len, lines))
        saving = time.monotonic() >= self._due
        if self._buffered < CHUNK and not saving:
            return
        self._hand_over(saving)
        while sum(size for _, size in self._jobs) > MOST_WAITING:
            # Not awaited directly: a cancellation here would cancel the job.
            await asyncio.wait([asyncio.wrap_future(self._jobs[0][0])])
            self._raise_failure()
            if self._jobs and self._jobs[0][0].done():
                self._jobs.popleft()

    def _hand_over(self, saving: bool) -> None:
        """Pass the collected lines to the thread, together with the positions that include them."""
        chunk, self._buffer = _joined(self._buffer), []
        held, self._buffered = self._buffered, 0
        if saving:
            self._due = time.monotonic() + SAVE_SECONDS
        positions = {
            **self.positions,
            **{s.name: [s.next, s.end, *(s.seen or ())] for s in self._spans},
        }
        gaps = all_gaps(self.gaps, self._noted())
        good = (self._count, positions, gaps)
        self._jobs.append((self._thread.submit(self._work, chunk, good, saving), held))

    def _work(self, chunk: Lines, good: tuple[int, Positions, list[str]], saving: bool) -> None:
        """Runs in the thread: write, and save the state if due. Does nothing after an error."""
        if self._failed is not None:
            return
        try:
            written = 0
            for piece in pieces_of(chunk):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
                written += len(piece)
            # set only after whole lines are written
            self._good = _Good(self._good.size + written, *good)
            self._unsynced += written
            if saving or self._unsynced >= SYNC_BYTES:
                os.fsync(self._file)  # regularly, so that little is left to do at the end
                self._unsynced = 0
            if saving:
                self._save()
        except OSError as error:
            self._failed = local_files.cannot("write", self._path, error)
        except Exception as error:
            self._failed = error
        if isinstance(self._failed, OperationError) and self._resume:
            self._retreat(self._failed)

    def _retreat(self, failed: OperationError) -> None:
        """Truncate to the last complete state before the disk was full, and save it."""
        try:
            os.ftruncate(self._file, self._good.size)
            os.fsync(self._file)
            self._save()
            failed.hint = NextStep.MAKE_ROOM
        except (OSError, OperationError):
            self._resume = False

    def _save(self) -> None:
        import orjson

        size, messages, positions, gaps = self._good
        state = {"asked": self._asked, "bytes": size, "messages": messages, "queues": positions}
        state["gaps"] = gaps
        local_files.replace(self._state, orjson.dumps(state, option=orjson.OPT_INDENT_2))

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        whole = kind is None and not self.incomplete
        ended = False
        try:
            self._hand_over(saving=not whole)
            self._jobs[-1][0].result()
            self._raise_failure()
            self._end(whole=whole, named=kind is None)
            # An export interrupted by brokers or Ctrl-C can be resumed; one with an invalid request
            # cannot.
            cut = kind is not None and not issubclass(kind, OperationError) and self._good.size > 0
            ended = kind is None or cut
        except OSError as failed:
            raise local_files.cannot("write", self._path, failed) from failed
        finally:
            self._thread.shutdown()
            os.close(self._file)
            if not ended and not self._resume:
                self._state.unlink(missing_ok=True)  # first: it would count bytes of FILE
                self._part.unlink(missing_ok=True)

    def _end(self, *, whole: bool, named: bool) -> None:
        os.fsync(self._file)
        if named:
            local_files.publish(self._part, self._path)
        if whole:
            self._state.unlink(missing_ok=True)
