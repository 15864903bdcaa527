"""A daemon in its own process: started, monitored, and restarted when it ends."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Self

from mq.client.machine import clock, files
from mq.daemons.log_output import LOG_NAME
from mq.daemons.service import EX_CONFIG, EX_OSERR, LIFELINE
from mq.daemons.supervision import CALM_SECONDS, FIRST_PAUSE, LONGEST_PAUSE

log = logging.getLogger(__name__)

_MOST_BYTES = 4096

# Seconds until a process that does not react to SIGABRT, because it is suspended, is killed.
_ABORT_SECONDS = 5.0

# Variables that systemd sets for the process that it started; a child gets its own.
OF_SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID")


class Notices:
    """A socket at ``path`` to which one child writes; `notify` is called with each name and value.

    The folder of the path must be accessible only to this process and its children, because any
    writer could impersonate a child.
    """

    def __init__(self, path: Path, notify: Callable[[str, str], None]) -> None:
        self.path = path
        self._notify = notify
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __enter__(self) -> Self:
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        files.remove(self.path)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            text = self._socket.recv(_MOST_BYTES).decode(errors="replace")
            for line in text.splitlines():
                name, equals, value = line.partition("=")
                if equals:
                    self._notify(name, value)


class State(StrEnum):
    """The state of a child."""

    STARTING = "starts"
    SERVING = "serves"
    ENDED = "has ended, and will be started again"
    AGAIN = "has ended, and is started again"
    GIVEN_UP = "has ended, and is not started again before a reload"


class Child:
    """One of several daemons.

    ``command`` runs it; ``lifeline`` is the end of a pipe whose other end this process keeps open
    as long as it lives; ``watchdog`` is the limit in seconds for which its event loop may stand
    still, 0 for no limit.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        notices: Path,
        lifeline: int,
        watchdog: float,
    ) -> None:
        self.name = name
        self.state = State.STARTING
        self.pid = 0
        self.restarts = 0
        self.last_end = ""  # how it ended the last time
        # Set when it serves, and when it has ended for the first time without having served.
        self.has_begun = asyncio.Event()
        self._command = command
        self._notices = notices
        self._lifeline = lifeline
        self._watchdog = watchdog
        self._environment = {k: v for k, v in environment.items() if k not in OF_SYSTEMD}
        self._environment |= {
            "NOTIFY_SOCKET": str(notices),
            LIFELINE: str(lifeline),
            LOG_NAME: name,
        }
        if watchdog:
            self._environment["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
        self._process: asyncio.subprocess.Process | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stop = asyncio.Event()
        self._again = asyncio.Event()

    def stop(self) -> None:
        """Request its end: `keep` returns when it has ended."""
        self._stop.set()
        self._again.set()
        self._signal(signal.SIGTERM)

    def reload(self) -> None:
        """Let it reload its files, or start it if it was given up."""
        if self.state is State.GIVEN_UP:
            self._again.set()
        elif self.state is State.SERVING:  # SIGHUP would end a process that is just starting
            self._signal(signal.SIGHUP)

    def abort(self) -> None:
        """Kill it at once, without waiting."""
        self._signal(signal.SIGKILL)

    def dump(self) -> None:
        """Let it log its state."""
        if self.state is State.SERVING:
            self._signal(signal.SIGUSR1)

    async def keep(self) -> None:
        """Start it, and restart it whenever it ends, until `stop`."""
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            began = clock.monotonic()
            # A query of the number of serving children must see that this one has failed before.
            self.state = State.AGAIN if self.last_end else State.STARTING
            status = await self._live()
            if self._stop.is_set():
                break
            self.last_end = _end_text(status)
            if clock.monotonic() - began >= CALM_SECONDS:
                pause = FIRST_PAUSE
            gives_up = status == EX_CONFIG
            self.state = State.GIVEN_UP if gives_up else State.ENDED
            self.has_begun.set()
            if gives_up:
                log.critical("%s %s; a restart would not help: fix the problem in its log, "
                             "then reload (SIGHUP)",
                             self.name, self.last_end)  # fmt: skip
            else:
                log.error("%s %s; restarting in %.1f s",
                          self.name, self.last_end, pause)  # fmt: skip
            await self._wait(None if gives_up else pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            self.restarts += 1

    async def _wait(self, seconds: float | None) -> None:
        self._again.clear()
        if not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._again.wait()

    async def _live(self) -> int:
        """Run it from its start to its end; returns its status, negative for a signal."""
        # A new socket for each run, so that late notices of a dead process are not taken for the
        # next one's.
        with Notices(self._notices, self._noticed):
            return await self._run()

    async def _run(self) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(self._lifeline,),
                start_new_session=True,  # Ctrl-C is for this process, which signals the child
            )
        except OSError as error:  # no process or no memory: possible later
            log.error("cannot start %s: %s", self.name, error)
            return EX_OSERR
        self._process, self.pid = process, process.pid
        if self._stop.is_set():  # stopped while it was starting
            self._signal(signal.SIGTERM)
        try:
            return await process.wait()
        finally:
            self._process, self.pid = None, 0
            self._expect(0)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _noticed(self, name: str, value: str) -> None:
        match name, value:
            case "READY", "1" if self.state in (State.STARTING, State.AGAIN):
                self.state = State.SERVING
                self.has_begun.set()
                self._expect(self._watchdog)
            case "WATCHDOG", "1":
                self._expect(self._watchdog)

    def _expect(self, seconds: float) -> None:
        """Expect another sign of life within so many seconds; 0 expects none."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._hangs)

    def _hangs(self) -> None:
        log.critical("the event loop of %s has not run for %.0f s; aborting it",
                     self.name, self._watchdog)  # fmt: skip
        self._signal(signal.SIGABRT)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(_ABORT_SECONDS, self._signal, signal.SIGKILL)


def _end_text(status: int) -> str:
    """How a process ended, as part of a sentence."""
    if status < 0:
        names = {int(number): number.name for number in signal.Signals}
        # Of the real-time signals only the first and the last have names.
        return f"was ended by {names.get(-status, f'signal {-status}')}"
    return f"ended with status {status}"
