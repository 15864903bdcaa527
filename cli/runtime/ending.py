"""How a command ends when somebody wants it to: by Ctrl-C, SIGTERM or SIGHUP.

The first signal interrupts it. Where plain code runs it raises Interrupted; what an event loop runs
is cancelled. Then the command gives back what it holds, says how to go on, and ends with 128 and
the number of the signal, or with 0 where Ctrl-C is how one ends it. The second signal ends the
process at once, after the terminal has been given back, unless it comes with the first.

Signals are the main thread's: a command in another one never sees any.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

from mq.cli.runtime.status import Status

STATUS = {
    signal.SIGINT: Status.INTERRUPTED,
    signal.SIGTERM: Status.TERMINATED,
    signal.SIGHUP: Status.HUNG_UP,
}
WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "its terminal has gone",
}


# Who starts us may pass on a signal that has come to us as well (timeout, containers): so soon
# behind the first it is the same one. Nobody presses a key twice in that time.
SAME_SECONDS = 0.05
_IMPORT_SECONDS = 0.01  # until it is looked again whether an import is through


class Interrupted(KeyboardInterrupt):
    """A signal, its `number`, is to end the command."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = signal.Signals(number)


class Signals:
    """The signals of one run of a command: `number` is the one that came, if any."""

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self.interrupt: Callable[[], None] | None = None  # instead of raising
        self.at = 0.0
        self.again: threading.Timer | None = None  # the signal was deferred, and comes again


_runs: list[Signals] = []  # the last is the one that signals are for: mq shell runs commands
_restore: list[Callable[[], None]] = []  # what gives the terminal back


def number_of(error: KeyboardInterrupt) -> signal.Signals:
    """The signal behind an interrupt."""
    return error.number if isinstance(error, Interrupted) else signal.SIGINT


def received() -> signal.Signals | None:
    """The signal that has come to the command that runs."""
    run = _own()
    return None if run is None else run.number


def _own() -> Signals | None:
    """The run that the calling thread is in, if signals are for it."""
    is_main = threading.current_thread() is threading.main_thread()
    return _runs[-1] if is_main and _runs else None


def is_ctrl_c() -> bool:
    """Whether it is Ctrl-C that ends what runs: how one ends what would go on for ever."""
    return received() is signal.SIGINT


@contextmanager
def signals() -> Iterator[Signals]:
    """Take the signals for one run of a command; those that are ignored stay so (nohup)."""
    run = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield run
        return
    usual = (signal.default_int_handler, signal.SIG_DFL)
    before = {}
    _runs.append(run)
    try:
        for number in STATUS:
            if signal.getsignal(number) in usual:
                before[number] = signal.signal(number, _handle)
        yield run
    finally:
        if run.again is not None:
            run.again.cancel()
        _runs.remove(run)
        for number, handler in before.items():
            signal.signal(number, handler)


def _handle(number: int, frame: FrameType | None) -> None:
    run = _runs[-1]
    now = time.monotonic()
    if run.number is not None and run.again is None:
        if now - run.at > SAME_SECONDS:
            _end(number)
        return
    if run.number is None:
        run.number, run.at = signal.Signals(number), now
    run.again = None
    if run.interrupt is not None:
        run.interrupt()
    elif _importing(frame):
        run.again = threading.Timer(_IMPORT_SECONDS, os.kill, (os.getpid(), run.number))
        run.again.start()
    else:
        raise Interrupted(run.number)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported. Compiled ones do not look whether what they import
    themselves was cut: orjson ends the process with a segmentation fault then."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end(number: int) -> None:
    for restore in reversed(_restore):
        with suppress(Exception):  # whatever state it was found in: the process ends
            restore()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container survives its own signals


@contextmanager
def interrupting(by: Callable[[], None] | None) -> Iterator[None]:
    """Have the signal call `by` while the block lasts; raise Interrupted in it for None."""
    run = _own() or Signals()
    before, run.interrupt = run.interrupt, by
    try:
        yield
    finally:
        run.interrupt = before


@contextmanager
def giving_back(restore: Callable[[], None]) -> Iterator[None]:
    """Have `restore` called should the process end at once while the block lasts."""
    _restore.append(restore)
    try:
        yield
    finally:
        _restore.remove(restore)


def screen_back(stream: TextIO) -> None:
    """Leave the screen of one's own, and show the cursor: past the stream, which may be in use."""
    os.write(stream.fileno(), b"\x1b[?1049l\x1b[?25h")


def cursor_back(stream: TextIO) -> None:
    """Show the cursor, at the beginning of a line."""
    os.write(stream.fileno(), b"\r\x1b[K\x1b[?25h")
