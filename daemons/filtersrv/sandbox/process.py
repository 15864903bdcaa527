"""A sandbox, seen from the filter server: a process that gets one request at a time.

It is ended, and the waiting caller gets the reason, when it is late, when it sends unrequested
data, when it ends itself, and when its connection breaks. The result of a match consists of bits
only.
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

# Seconds in which a delayed event loop first reads pending data before it reports a timeout.
_GRACE_SECONDS = 0.02
START_SECONDS = 10.0  # limit until a new process is confined
_CPU_SECONDS = 600  # limit of a process in total; it is replaced long before (see `is_worn`)
_WORN_SECONDS = 300.0
# limit between two checks of an idle process; its housekeeping takes far less
_IDLE_CPU_SECONDS = 0.1
_BUFFER = 1 << 20  # of the socket, so that a batch is sent in few pieces


class FilterFailed(Exception):
    """The class is invalid or has raised; its process continues. The text says where, and the
    error.
    """


class SandboxEnded(Exception):
    """The process has ended; the text says why."""


class NoSandbox(Exception):
    """This machine allows no sandboxes; the text says why."""


class Limits(NamedTuple):
    """The limits of a sandbox."""

    memory: int  # bytes, for all mappings
    load_seconds: float  # to compile a class and create its filter
    match_seconds: float  # for a batch, plus ...
    message_seconds: float  # ... this time for each of its messages


class Sandbox(asyncio.Protocol):
    """One process. `start`, then `load`, then `match` repeatedly; `kill` at any time."""

    def __init__(self, limits: Limits, name: str) -> None:
        self._limits = limits
        self._name = name
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None
        self._number = frames.CONFINED
        self._count = 0
        self._reason = ""  # the reason for its end
        self._ended = asyncio.Event()
        self._worked = 0.0
        self._checked = -1, 0.0  # at the last check: the last request, and the CPU time
        self._reaping: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set() or bool(self._reason)

    @property
    def is_gone(self) -> bool:
        """Whether its process has existed and ended."""
        return self._reaping is not None and self._reaping.done()

    @property
    def pid(self) -> int:
        """The process id, 0 without a process."""
        return 0 if self._process is None or self.has_ended else self._process.pid

    @property
    def is_worn(self) -> bool:
        """Whether it should be replaced because it has worked for long: the CPU time of a process
        is limited, and it may leak memory.
        """
        return self._worked > _WORN_SECONDS

    async def start(self) -> None:
        """Start the process and wait until it is confined.

        Raises NoSandbox if it cannot be confined, SandboxEnded, and OSError if no process can be
        started.
        """
        import tempfile  # a broker imports this module for its limits, and starts no sandbox

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
        """Create the filter of a class. Raises FilterFailed, SandboxEnded."""
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

    def check_idle(self) -> None:
        """End the process if it computes without a request. Called periodically, because a class
        can send an answer like its process does, and continue to compute.
        """
        if not self.pid or self._waiting is not None:
            self._checked = -1, 0.0
            return
        used = _cpu_seconds(self.pid)
        number, before = self._checked
        if number == self._number and used - before > _IDLE_CPU_SECONDS:
            self.kill("it computes without a request")
        self._checked = self._number, used

    def kill(self, reason: str) -> None:
        """End the process at once. Idempotent: the first reason counts."""
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
        """End the process and wait for its end. Idempotent."""
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
                self._buffer += data  # it was confined before the first request
                if len(self._buffer) > ANSWER.size + frames.MOST_TEXT:
                    self.kill("it sent more than requested")
                return
            self.kill("it sent data without a request")
            return
        self._buffer += data
        self._read(waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to do: the end of the process reports the reason."""

    def _read(self, waiting: "asyncio.Future[bytes]") -> None:
        """Process the received answer if it is whole; an invalid one ends the process."""
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
            self.kill("its answer does not match the request")
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
        """Wait for its answer; the process is killed if it is late or the caller cancelled."""
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
            self.kill("its caller was cancelled")
            raise
        finally:
            late.cancel()
            self._worked += loop.time() - began

    def _is_late(self, waiting: "asyncio.Future[bytes]", reason: str) -> None:
        if self._waiting is waiting:  # None once the answer has arrived
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
        """Fail the waiting caller; if the process ended by itself, the reason is known when it has
        ended.
        """
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(SandboxEnded(self.why_ended))

    @property
    def why_ended(self) -> str:
        """The reason of its end, for texts."""
        return f"the sandbox of {self._name} was ended: {self._reason or 'it has ended'}"


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process; 0 if it has ended."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3), which Python lacks
    except OSError:
        return 0.0


_FAILURES = (Status.FAILED, Status.NOT_CONFINED)


def _printable(data: bytes) -> str:
    """A text of the sandbox, as one printable line for a log."""
    text = " ".join(data.decode("utf-8", "replace").split())
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _end_text(status: int) -> str:
    match -status:
        case signal.SIGSYS:
            return "its class made a forbidden system call (SIGSYS)"
        case signal.SIGSEGV | signal.SIGBUS:
            return "its class crashed it, for example by infinite recursion (SIGSEGV)"
        case signal.SIGXCPU:
            return "it used too much CPU time (SIGXCPU)"
    if status == OUT_OF_MEMORY:
        return "its class exceeded its memory limit (filterMemoryMaxBytes)"
    return f"it ended by {'signal' if status < 0 else 'status'} {abs(status)}"


def _command(limits: Limits, root: str) -> list[str]:
    mine = str(Path(sys.modules["mq"].__file__ or "").parents[1])
    start = (
        f"import sys; sys.path.insert(0, {mine!r}); "
        "from mq.daemons.filtersrv.sandbox.inside import main; main()"
    )
    words = [str(limits.memory), str(_CPU_SECONDS), root, str(os.getpid())]
    return [sys.executable, "-P", "-B", "-X", "utf8", "-c", start, *words]
