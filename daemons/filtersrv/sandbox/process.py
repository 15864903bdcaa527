"""A sandbox, seen from the filter server: a process that is asked one thing at a time.

It is ended, and whoever waits for it is told why, when it is late, when it sends what was not asked
for, when it ends itself, and when its connection breaks. Nothing that it sends is more than bits.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple, cast

from mq.daemons.filtersrv.sandbox import frames
from mq.daemons.filtersrv.sandbox.frames import ANSWER, OUT_OF_MEMORY, REQUEST, Status

log = logging.getLogger(__name__)

# A loop that was late itself first reads what has come meanwhile.
_GRACE_SECONDS = 0.02
START_SECONDS = 10.0  # until a process that has begun is confined
_CPU_SECONDS = 600  # of a process in all; it is replaced long before (see `is_worn`)
_WORN_SECONDS = 300.0
_IDLE_CPU_SECONDS = 0.1  # between two looks at one that nobody asks; what it tidies up is far less
_BUFFER = 1 << 20  # of the socket, so that a batch goes over in few pieces


class FilterFailed(Exception):
    """The class is wrong or has raised; its process goes on. The text says where, and what."""


class SandboxEnded(Exception):
    """The process is gone; the text says why."""


class NoSandbox(Exception):
    """This machine allows no sandbox; the text says why."""


class Limits(NamedTuple):
    """What a sandbox may use."""

    memory: int  # bytes, all that it maps
    load_seconds: float  # to compile a class and to make its filter
    match_seconds: float  # for a batch, beside ...
    message_seconds: float  # ... so much for each of its messages


class Sandbox(asyncio.Protocol):
    """One process. `start`, then `load`, then `match` again and again; `kill` at any time."""

    def __init__(self, limits: Limits, name: str) -> None:
        self._limits = limits
        self._name = name
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None
        self._number = frames.CONFINED
        self._count = 0
        self._reason = ""  # why it has been ended
        self._ended = asyncio.Event()
        self._worked = 0.0
        self._looked = -1, 0.0  # the last request then, and the time of the CPU
        self._reaping: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set() or bool(self._reason)

    @property
    def is_gone(self) -> bool:
        """Whether its process has been there, and is no more."""
        return self._reaping is not None and self._reaping.done()

    @property
    def pid(self) -> int:
        """0 when there is no process."""
        return 0 if self._process is None or self.has_ended else self._process.pid

    @property
    def is_worn(self) -> bool:
        """Whether it has worked so long that it should be replaced: time of the CPU is limited for
        a process as a whole, and what leaks in it is its own."""
        return self._worked > _WORN_SECONDS

    async def start(self) -> None:
        """Start the process and wait until it is confined.

        Raises NoSandbox where it cannot be, SandboxEnded, OSError where no process can be made.
        """
        import tempfile  # a broker reads this module's limits, and starts none

        ours, theirs = socket.socketpair()
        for one in (ours, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            one.setblocking(False)
        theirs.setblocking(True)
        loop = asyncio.get_running_loop()
        try:
            with tempfile.TemporaryDirectory(prefix="mq-sandbox-") as root:
                try:
                    self._process = await asyncio.create_subprocess_exec(
                        *_command(self._limits, root),
                        stdin=theirs.fileno(),
                        stdout=theirs.fileno(),
                        stderr=asyncio.subprocess.DEVNULL,
                        env={},
                        cwd="/",
                        start_new_session=True,
                    )
                finally:
                    theirs.close()
                self._reaping = loop.create_task(self._reap(self._process))
                await loop.create_connection(lambda: self, sock=ours)
                await self._confined()
        except BaseException:
            if self._transport is None:
                ours.close()
            self.kill("it has not started")
            raise

    async def _confined(self) -> None:
        """Wait for the first answer. Raises NoSandbox, SandboxEnded."""
        try:
            await self._answer(0, START_SECONDS, "to start")
        except FilterFailed as error:
            self.kill(str(error))
            raise NoSandbox(str(error)) from None

    async def load(self, group: str, name: str, source: bytes) -> None:
        """Make the filter of a class. Raises FilterFailed, SandboxEnded."""
        texts = frames.join_texts(group.encode(), name.encode(), source)
        self._ask(frames.LOAD, 0, texts)
        await self._answer(0, self._limits.load_seconds, "to load the class")

    async def match(self, records: bytes | memoryview, count: int) -> bytes:
        """A bit for each of so many records, lowest bit first.

        Raises FilterFailed, SandboxEnded.
        """
        self._ask(frames.MATCH, count, records)
        seconds = self._limits.match_seconds + count * self._limits.message_seconds
        return await self._answer(count, seconds, f"to match {count} messages")

    def look(self) -> None:
        """To be called from time to time: ends a process that computes though nobody asks it. A
        class can answer like the process that it is in, and go on for as long as it likes."""
        if not self.pid or self._waiting is not None:
            self._looked = -1, 0.0
            return
        used = _cpu_seconds(self.pid)
        number, before = self._looked
        if number == self._number and used - before > _IDLE_CPU_SECONDS:
            self.kill("it computes though nobody asks it anything")
        self._looked = self._number, used

    def kill(self, reason: str) -> None:
        """End it at once. Safe to call again: the first reason counts."""
        if not self._reason:
            self._reason = reason
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass
        if self._transport is not None:
            self._transport.abort()
        self._fail()

    async def close(self) -> None:
        """End it and wait for its end. Safe to call again."""
        self.kill("the filter server is done with it")
        if self._reaping is not None:
            await asyncio.wait([self._reaping])

    # the connection -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._reason:
            return
        waiting = self._waiting
        if waiting is None:
            if self._process is not None and self._number == frames.CONFINED and not self._worked:
                self._buffer += data  # it was confined before anybody asked
                if len(self._buffer) > ANSWER.size + frames.MOST_TEXT:
                    self.kill("it sent more than was asked for")
                return
            self.kill("it sent what nobody had asked for")
            return
        self._buffer += data
        self._read(waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        """Its end is told with the reason, which the end of the process has."""

    def _read(self, waiting: "asyncio.Future[bytes]") -> None:
        """Take the answer that has come, if it is whole; end the process for any other."""
        if len(self._buffer) < ANSWER.size:
            return
        status, number, count = ANSWER.unpack_from(self._buffer)
        is_done = status == Status.DONE
        size = frames.bits(count) if is_done else count
        if (
            number != self._number
            or (is_done and count != self._count)
            or (not is_done and (count > frames.MOST_TEXT or status not in _FAILURES))
            or len(self._buffer) > ANSWER.size + size
        ):
            self.kill("its answer is not what was asked for")
            return
        if len(self._buffer) < ANSWER.size + size:
            return
        data = bytes(self._buffer[ANSWER.size :])
        self._buffer.clear()
        self._waiting = None
        if waiting.done():
            return
        if is_done:
            waiting.set_result(data)
        else:
            waiting.set_exception(FilterFailed(_printable(data)))

    def _ask(self, kind: int, count: int, data: bytes | memoryview) -> None:
        if self.has_ended or self._transport is None:
            raise SandboxEnded(self.why_ended)
        self._number = self._number % 0x7FFFFFFF + 1
        self._count = count
        self._transport.write(REQUEST.pack(kind, self._number, count, len(data)))
        self._transport.write(data)

    async def _answer(self, count: int, seconds: float, purpose: str) -> bytes:
        """What it answers; it is killed where it does not in time, or where nobody waits on."""
        loop = asyncio.get_running_loop()
        if self.has_ended:
            raise SandboxEnded(self.why_ended)
        self._count = count
        waiting: asyncio.Future[bytes] = loop.create_future()
        self._waiting = waiting
        if self._buffer:
            self._read(waiting)
        began = loop.time()
        reason = f"it took more than {seconds:.1f} s {purpose}"
        late = loop.call_later(
            seconds,
            lambda: loop.call_later(_GRACE_SECONDS, self._is_late, waiting, reason),
        )
        try:
            return await waiting
        except asyncio.CancelledError:
            self.kill("nobody waits for it any more")
            raise
        finally:
            late.cancel()
            self._worked += loop.time() - began

    def _is_late(self, waiting: "asyncio.Future[bytes]", reason: str) -> None:
        if self._waiting is waiting:  # which is nobody once the answer has come
            self.kill(reason)

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        if not self._reason:
            self._reason = _end_text(status)
        self._ended.set()
        if self._transport is not None:
            self._transport.abort()
        self._fail()

    def _fail(self) -> None:
        """Tell whoever waits; where the reason is not ours, it comes when the process has ended."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(SandboxEnded(self.why_ended))

    @property
    def why_ended(self) -> str:
        """For people, once it has ended."""
        return f"the sandbox of {self._name} was ended: {self._reason or 'it has ended'}"


def _cpu_seconds(pid: int) -> float:
    """What a process has used of the CPU; 0 for one that is gone."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3), which Python lacks
    except OSError:
        return 0.0


_FAILURES = (Status.FAILED, Status.NOT_CONFINED)


def _printable(data: bytes) -> str:
    """A text of the sandbox, in one line that may go into a log."""
    text = " ".join(data.decode("utf-8", "replace").split())
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _end_text(status: int) -> str:
    match -status:
        case signal.SIGSYS:
            return "its class asked the system for what a filter may not have (SIGSYS)"
        case signal.SIGSEGV | signal.SIGBUS:
            return "its class crashed it, as recursion without end does (SIGSEGV)"
        case signal.SIGXCPU:
            return "it used too much time of the CPU (SIGXCPU)"
    if status == OUT_OF_MEMORY:
        return "its class wanted more memory than it may have (filterMemoryMaxBytes)"
    return f"it ended by {'signal' if status < 0 else 'status'} {abs(status)}"


def _command(limits: Limits, root: str) -> list[str]:
    mine = str(Path(sys.modules["mq"].__file__ or "").parents[1])
    start = (
        f"import sys; sys.path.insert(0, {mine!r}); "
        "from mq.daemons.filtersrv.sandbox.inside import main; main()"
    )
    words = [str(limits.memory), str(_CPU_SECONDS), root, str(os.getpid())]
    return [sys.executable, "-P", "-B", "-X", "utf8", "-c", start, *words]
