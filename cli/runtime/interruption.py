"""How a command ends when somebody wants it to: by Ctrl-C, SIGTERM or SIGHUP.

The first signal interrupts it. Where plain code runs it raises Interrupted; what an event loop runs
is cancelled. Then the command gives back what it holds, says how to go on, and ends with 128 and
the number of the signal, or with 0 where Ctrl-C is how one ends it. The second signal ends the
process at once, after the terminal has been given back, unless it comes with the first.

Signals are the main thread's: a command in another one never sees any, nor changes what becomes of
those of the main thread's.
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
    signal.SIGHUP: "its terminal has gone",
}


# Who starts us may pass on a signal that has come to us as well (timeout, containers): so soon
# behind the first it is the same one. Nobody presses a key twice in that time.
SAME_SECONDS = 0.05
_IMPORT_SECONDS = 0.01  # until it is looked again whether an import is through


T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """A signal, its `number`, is to end the command; `late` when that had done its work."""

    def __init__(self, number: int, *, late: bool = False) -> None:
        super().__init__()
        self.number = signal.Signals(number)
        self.late = late


class Signals:
    """The signals of one run of a command: `number` is the one that came, if any."""

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self.interrupt: Callable[[], None] | None = None  # instead of raising
        self.at = 0.0
        self.again: threading.Timer | None = None  # the signal was deferred, and comes again
        self.comes_again = False  # the next one is that
        self.has_ended = False
        self.is_late = False  # it came then

    def come_again(self) -> None:
        """Send the deferred signal; for its timer."""
        if self.number is not None:
            self.comes_again = True
            os.kill(os.getpid(), self.number)


class _Runs(threading.local):
    def __init__(self) -> None:
        self.stack: list[Signals] = []  # the last is the one that signals are for: mq shell


_local = _Runs()  # only the main thread's are ever filled
_restore: list[tuple[Signals, Callable[[], None]]] = []  # what gives the terminal back


def number_of(error: KeyboardInterrupt) -> signal.Signals:
    """The signal behind an interrupt."""
    return error.number if isinstance(error, Interrupted) else signal.SIGINT


def received() -> signal.Signals | None:
    """The signal that has come to the command that runs."""
    return _local.stack[-1].number if _local.stack else None


def end_if_told() -> None:
    """Raise Interrupted if a signal has come, for what goes on behind work that had ended then: an
    event loop that is being closed has nothing left to cancel."""
    number = received()
    if number is not None:
        raise Interrupted(number)


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
    finally:  # where only what comes first could raise: in the line before
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
            os.kill(os.getpid(), run.number)  # it is for who comes next


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
    """Whether a module is being imported. Compiled ones do not look whether what they import
    themselves was cut: orjson ends the process with a segmentation fault then."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _give_back(run: Signals) -> None:
    """Give back what is not: a signal may come as a block is left, before that does anything."""
    for held in reversed([held for held in _restore if held[0] is run]):
        _restore.remove(held)
        with suppress(Exception):  # whatever state it was found in
            held[1]()


def _end(number: int) -> None:
    for run in reversed(_local.stack):
        _give_back(run)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container survives its own signals


@contextmanager
def interrupting(by: Callable[[], None] | None) -> Iterator[None]:
    """Have the signal call `by` while the block lasts; raise Interrupted in it for None."""
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
    """Have the first signal wait until the block ends."""
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
    """Enter and leave a manager with no signal in between: one that has begun to change a terminal
    and was cut does not change it back."""
    stack = ExitStack()
    with stack:  # again, if the signal comes before the rest: there is only one first
        try:
            with uninterrupted():
                value = stack.enter_context(manager)
            yield value
        finally:
            with uninterrupted():
                stack.__exit__(*sys.exc_info())


@contextmanager
def giving_back(restore: Callable[[], None]) -> Iterator[None]:
    """Have `restore` called should a signal end the block, or the process while it lasts."""
    held = (_current(), restore)
    _restore.append(held)
    try:
        yield
    except KeyboardInterrupt:  # what was cut may believe that it has, and keep it in a buffer
        with suppress(Exception):
            restore()
        raise
    finally:
        if held in _restore:
            _restore.remove(held)


def screen_back(stream: TextIO) -> None:
    """Leave the screen of one's own, and show the cursor: past the stream, which may be in use."""
    os.write(stream.fileno(), b"\x1b[?1049l\x1b[?25h")


def cursor_back(stream: TextIO) -> None:
    """Show the cursor, at the beginning of a line."""
    os.write(stream.fileno(), b"\r\x1b[K\x1b[?25h")
