"""Writing the messages of a topic to a file of JSON lines, so that a cut export can go on.

While an export to FILE runs, what it has is in FILE.part, and how far it has come in FILE.state:
for each queue the next offset and the end, how many bytes and messages of FILE.part are good, and
what was passed over: who goes on behind it tells of it all the same. A queue that could not be
asked yet has no offsets, and is missed until it can be. The state is written every few seconds,
after the bytes that it counts are on disk. At the end FILE.part becomes FILE.
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

CHUNK = 4 * 1024 * 1024  # bytes handed to the thread that writes at a time
MOST_WAITING = 3 * CHUNK  # bytes that may wait for the disk, and those of one chunk more
SYNC_BYTES = 64 * 1024 * 1024  # written at most between two fsyncs

# By queue the next offset and the end, and the offset and store time of a message that was read;
# the latter two, or all four, are missing of a queue of which nothing was read, or asked, yet.
Positions = dict[str, list[int]]


def _joined(lines: list[bytes | LongLine]) -> Lines:
    """The same with what is there as bytes in one piece each."""
    found: list[bytes | LongLine] = []
    for is_made, together in groupby(lines, lambda line: isinstance(line, bytes)):
        run = list(together)
        found += [b"".join(pieces_of(run))] if is_made else run
    return found


class _Good(NamedTuple):
    """What is written: bytes, messages, how far each queue is with them, and the gaps until
    then."""

    size: int
    messages: int
    positions: Positions
    gaps: list[str]


class Cut(NamedTuple):
    """What a cut export has left: its files, and how many messages the state counts."""

    part: Path
    state: Path
    messages: int


def cut(path: Path) -> Cut | None:
    """What an export to `path` has left that can go on, if anything."""
    import orjson

    part, state = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.state")
    try:
        messages = int(orjson.loads(state.read_bytes())["messages"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return Cut(part if part.exists() else path, state, messages)


class FileSink:
    """Lines go to FILE.part, with a state beside it. A context manager.

    Leaving it in order makes FILE; else what is there stays for `resume`, or goes when the disk has
    no room for it. A thread of its own writes, so that disk and network work side by side; jobs
    follow one another there, so a state that is saved counts exactly what was written before it.
    """

    def __init__(self, path: Path, asked: dict[str, Any], *, resume: bool) -> None:
        """`asked` is what the export is of: an export of something else does not go on."""
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._state = path.with_name(f"{path.name}.state")
        self._asked = asked
        self._resume = resume
        self._due = time.monotonic() + SAVE_SECONDS
        self._buffer: list[bytes | LongLine] = []
        self._buffered = 0
        self._unsynced = 0
        self._count = 0  # messages that were taken, by the cut export, too
        self._good = _Good(0, 0, {}, [])
        self._spans: list[Span] = []
        self._thread = ThreadPoolExecutor(1, "mq-export")
        self._jobs: deque[tuple[Future[None], int]] = deque()  # with the bytes that each holds
        self._failed: Exception | None = None
        self.positions: Positions = {}  # of a cut export
        self.gaps: list[str] = []  # that it has told of
        self._noted: Callable[[], list[str]] = list
        self.incomplete = False  # some queue could not be read: keep the state

    def __enter__(self) -> "FileSink":
        good = self._load() if self._resume else 0
        try:
            self._file = os.open(self._part, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                self._prepare(good)
            except BaseException:  # in a shell many follow
                os.close(self._file)
                raise
        except OSError as error:
            raise local_files.cannot("write", self._part, error) from error
        self._good = _Good(good, self._count, self.positions, self.gaps)
        return self

    def _prepare(self, good: int) -> None:
        """Have the file hold what is good, and go on behind that."""
        os.fchmod(self._file, 0o600)  # bodies are for who may read them at the broker
        if not self._resume:  # a state of another run would count the bytes of this one
            local_files.remove(self._state)
        os.ftruncate(self._file, good)
        os.lseek(self._file, good, os.SEEK_SET)

    @property
    def written(self) -> int:
        """How many messages the export has written until it was cut."""
        return self._count

    def _load(self) -> int:
        """Take over the state of a cut export; returns the good bytes. Raises OperationError."""
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
            if not self._part.exists():  # it had ended, without some queues
                self._path.replace(self._part)
        if not self._part.exists() or self._part.stat().st_size < good:
            raise unreadable(f"{self._part} is shorter than its state says")
        return good

    def begin(
        self, spans: list[Span], unread: list[str], noted: Callable[[], list[str]] = list
    ) -> None:
        """Note what is to be read, and the names of queues that could not be asked. `noted` gives a
        line for all that was passed over by now."""
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
            # Not awaited itself: who is cancelled here would cancel the job.
            await asyncio.wait([asyncio.wrap_future(self._jobs[0][0])])
            self._raise_failure()
            if self._jobs and self._jobs[0][0].done():
                self._jobs.popleft()

    def _hand_over(self, saving: bool) -> None:
        """Let the thread write what there is, which the positions of this moment count."""
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
        """In the thread: write, and save the state if that is due. After an error, nothing more."""
        if self._failed is not None:
            return
        try:
            written = 0
            for piece in pieces_of(chunk):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(self._file, rest) :]
                written += len(piece)
            self._good = _Good(self._good.size + written, *good)  # whole lines, and only now
            self._unsynced += written
            if saving or self._unsynced >= SYNC_BYTES:
                os.fsync(self._file)  # piece by piece, so that little is left to do at the end
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
        """Back to what was whole before the disk was full, and have the state say so."""
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
            # What brokers or Ctrl-C have cut can go on; what was asked for wrongly can not.
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
