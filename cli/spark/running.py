"""Runs spark-submit: passes on its output to standard error, and signals to it."""

import os
import select
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from types import FrameType
from typing import IO, Any, NamedTuple, TextIO

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.signal_wakeup import quieten, woken
from mq.cli.runtime.status import Status

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEPT_LINES = 200  # lines of the log, to find the cause of a failure
_POLL_MS = 200  # the interval of checks for the end of a process without a pidfd
_LOG_TIMEOUT = 10.0  # seconds that a process outside the group may keep the log open


class SubmitOutcome(NamedTuple):
    """The status of spark-submit (negative: a signal), and the last lines of its log."""

    status: int
    lines: list[str]


def run(command: list[str], variables: Mapping[str, str], log: TextIO) -> SubmitOutcome:
    """Run a command to its end; both of its output streams go to `log`.

    SIGINT, SIGTERM and SIGHUP are passed on to all of its processes, and it is awaited; a second
    one kills them. Then raises Interrupted. Raises CommandError if the command cannot be started.
    """
    with _Signals() as signals:
        try:
            # In its own session: otherwise Ctrl-C would reach its processes twice.
            process = subprocess.Popen(
                command,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(
                f"cannot run {command[0]}: {error.strerror}", status=Status.UNAVAILABLE
            ) from error
        signals.pass_on_to(process.pid)
        lines: deque[str] = deque(maxlen=_KEPT_LINES)
        assert process.stdout is not None
        copier = threading.Thread(target=_copy, args=(process.stdout, log, lines), daemon=True)
        copier.start()
        status = _end_of(process)
        # Remaining processes of the group are orphans; the log ends with the last of them.
        _send(process.pid, signal.SIGKILL)
        copier.join(_LOG_TIMEOUT)
    if signals.received:
        raise Interrupted(signals.received[0])
    return SubmitOutcome(status, list(lines))


class _Signals:
    """Collects signals during the block, and sends them to a process group."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._group: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Signals":
        # Other threads receive no signals.
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pass_on_to(self, group: int) -> None:
        self._group = group
        for number in self.received:
            _send(group, number)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        if self._group is not None:
            _send(self._group, number if len(self.received) == 1 else signal.SIGKILL)


class Interrupted(BaseException):
    """The signal `number` came while spark-submit ran; it is handled after the cleanup."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def deliver(number: int) -> None:
    """Perform the signal's original action."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _end_of(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a process while handling signals. Returns its status."""
    with woken() as signals, ExitStack() as held:
        if signals is not None:
            poll = select.poll()
            poll.register(signals, select.POLLIN)
            pause = None
            try:
                handle = os.pidfd_open(process.pid)
            except (AttributeError, OSError):  # before Linux 5.3, or in a container without it
                pause = _POLL_MS
            else:
                held.callback(os.close, handle)
                poll.register(handle, select.POLLIN)
            while process.poll() is None:
                poll.poll(pause)
                quieten(signals)
    return process.wait()


def _send(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # they have ended


def _copy(source: IO[bytes], log: TextIO, lines: deque[str]) -> None:
    """Copy the output as it comes, not by lines: a progress bar redraws one line."""
    unfinished = b""
    with source:
        while content := os.read(source.fileno(), 65536):
            log.write(content.decode("utf-8", "replace"))
            log.flush()
            *whole, unfinished = (unfinished + content).split(b"\n")
            lines.extend(line.decode("utf-8", "replace") for line in whole)
            unfinished = unfinished[-4096:]
