"""The end of a command by Ctrl-C, SIGTERM or SIGHUP.

The first signal interrupts it. In plain code it raises Interrupted; work of an event loop is
cancelled. Then the command cleans up, prints how to continue, and exits with 128 plus the signal's
number, or with 0 if Ctrl-C is its normal end. A second signal ends the process at once, after the
terminal is restored, unless it is a duplicate of the first.

Signals are delivered to the main thread: a command in another thread receives none, and does not
change their handling.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from types import FrameType
from typing import TextIO, TypeVar

from mq.cli.runtime.status import Status

STATUS = {
    signal.SIGINT: Status.INTERRUPTED,
    signal.SIGTERM: Status.TERMINATED,
    signal.SIGHUP: Status.HUNG_UP,
}
WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "its terminal was closed",
}


# A parent may pass on a signal that we have received, too (timeout, containers). A second one
# within this time, in seconds, is a duplicate; no user presses a key twice that fast.
SAME_SECONDS = 0.05
_IMPORT_SECONDS = 0.01  # the interval of checks whether an import has finished


T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """The signal `number` ends the command; `late` if the command had finished its work."""

    def __init__(self, number: int, *, late: bool = False) -> None:
        super().__init__()
        self.number = signal.Signals(number)
        self.late = late


class Signals:
    """The signals of one run of a command: `number` is the received one, if any."""

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self.interrupt: Callable[[], None] | None = None  # called instead of raising
        self.at = 0.0
        self.again: threading.Timer | None = None  # sends the deferred signal again
        self.comes_again = False  # the next signal is the deferred one
        self.has_ended = False
        self.is_late = False  # it came after the end

    def come_again(self) -> None:
        """Send the deferred signal; called by the timer."""
        if self.number is not None:
            self.comes_again = True
            os.kill(os.getpid(), self.number)


class _Runs(threading.local):
    def __init__(self) -> None:
        self.stack: list[Signals] = []  # the last one receives signals: mq shell


_local = _Runs()  # only that of the main thread is ever filled
_restore: list[tuple[Signals, Callable[[], None]]] = []  # functions that restore the terminal


def number_of(error: KeyboardInterrupt) -> signal.Signals:
    """Return the signal of an interrupt."""
    return error.number if isinstance(error, Interrupted) else signal.SIGINT


def received() -> signal.Signals | None:
    """Return the signal that the running command has received."""
    return _local.stack[-1].number if _local.stack else None


def raise_if_received() -> None:
    """Raise Interrupted if a signal has been received, before further work.

    An event loop that is being closed has nothing left to cancel.
    """
    number = received()
    if number is not None:
        raise Interrupted(number)


def is_ctrl_c() -> bool:
    """Return whether Ctrl-C ends the command, which is the normal end of an endless one."""
    return received() is signal.SIGINT


@contextmanager
def signals() -> Iterator[Signals]:
    """Handle the signals during one run of a command; ignored ones stay ignored (nohup)."""
    run = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield run
        return
    usual = (signal.default_int_handler, signal.SIG_DFL)
    before = {}
    try:
        _local.stack.append(run)
        try:
            for number in STATUS:
                handler = signal.getsignal(number)
                if handler in usual:
                    before[number] = handler
                    signal.signal(number, _handle)
            yield run
        finally:
            run.has_ended = True
    finally:  # a signal in the inner finally could raise
        run.has_ended = True
        if run.again is not None:
            run.again.cancel()
            run.again.join()
        _give_back(run)
        for number, handler in before.items():
            signal.signal(number, handler)
        if run in _local.stack:
            _local.stack.remove(run)
        if run.is_late and run.number is not None:
            os.kill(os.getpid(), run.number)  # for the next run


def _handle(number: int, frame: FrameType | None) -> None:
    run = _local.stack[-1]
    now = time.monotonic()
    again, run.comes_again = run.comes_again, False
    if run.number is not None and not again:
        if now - run.at > SAME_SECONDS:
            _end(number)
        return
    if run.number is None:
        run.number, run.at, run.is_late = signal.Signals(number), now, run.has_ended
    if run.has_ended:  # nothing is left to interrupt
        return
    run.again = None
    if run.interrupt is not None:
        run.interrupt()
    elif _importing(frame):
        run.again = threading.Timer(_IMPORT_SECONDS, run.come_again)
        run.again.start()
    else:
        raise Interrupted(run.number)


def _importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported.

    Compiled modules do not check whether their own imports were interrupted: orjson then crashes.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _give_back(run: Signals) -> None:
    """Restore the terminal where a block has not: a signal may come as a block is left."""
    for held in reversed([held for held in _restore if held[0] is run]):
        _restore.remove(held)
        with suppress(Exception):  # the terminal may be in any state
            held[1]()


def _end(number: int) -> None:
    for run in reversed(_local.stack):
        _give_back(run)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the init process of a container survives its own signals


@contextmanager
def interrupting(by: Callable[[], None] | None) -> Iterator[None]:
    """Let the signal call `by` during the block; with None it raises Interrupted there."""
    run = _current()
    before, run.interrupt = run.interrupt, by
    try:
        yield
    finally:
        run.interrupt = before


def _current() -> Signals:
    return _local.stack[-1] if _local.stack else Signals()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer the first signal to the end of the block."""
    run = _current()
    came: list[bool] = []
    with interrupting(lambda: came.append(True)):
        yield
    if came and run.number is not None:
        if run.interrupt is None:
            raise Interrupted(run.number)
        run.interrupt()


@contextmanager
def whole(manager: AbstractContextManager[T]) -> Iterator[T]:
    """Enter and leave a manager without an interruption.

    A manager that is interrupted while it changes a terminal would not restore it.
    """
    stack = ExitStack()
    with stack:  # leaves it if the signal comes earlier; there is only one first signal
        try:
            with uninterrupted():
                value = stack.enter_context(manager)
            yield value
        finally:
            with uninterrupted():
                stack.__exit__(*sys.exc_info())


@contextmanager
def giving_back(restore: Callable[[], None]) -> Iterator[None]:
    """Call `restore` if a signal ends the block, or the process during the block."""
    held = (_current(), restore)
    _restore.append(held)
    try:
        yield
    except KeyboardInterrupt:  # interrupted code may have restored it only in a buffer
        with suppress(Exception):
            restore()
        raise
    finally:
        if held in _restore:
            _restore.remove(held)


def screen_back(stream: TextIO) -> None:
    """Leave the alternate screen and show the cursor, bypassing the stream, which may be in use."""
    os.write(stream.fileno(), b"\x1b[?1049l\x1b[?25h")


def cursor_back(stream: TextIO) -> None:
    """Show the cursor, at the start of a line."""
    os.write(stream.fileno(), b"\r\x1b[K\x1b[?25h")
