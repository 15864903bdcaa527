"""Signals at rare moments: within an import, at the very end of a command, while a terminal is
being changed, and with commands in other threads.
"""

import asyncio
import functools
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from mq.cli.runtime import interruption, invocation, progress, watching
from mq.cli.runtime.call import Call
from mq.cli.runtime.env import Environment
from mq.cli.runtime.invocation import Invocation
from mq.cli.show.output import Format
from mq.cli.show.result import Result

pytestmark = pytest.mark.usefixtures("usual_ctrl_c")


def send() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@functools.cache
def beginnings(code: CodeType) -> dict[int, int]:
    """Return where each line begins in the code."""
    found: dict[int, int] = {}
    for begin, _, line in code.co_lines():
        if line is not None:
            found.setdefault(line, begin)
    return found


@contextmanager
def at_line(number: int, files: set[str], act: Callable[[], None]) -> Iterator[list[int]]:
    """Act before line `number` of those that run in the files; the list is how many have run.

    A line is its beginning: a `with` is a line once more where its block has ended. No signal is
    handled there before what was entered has been left, so that a lock stays taken only here.
    """
    lines = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line" and beginnings(frame.f_code).get(frame.f_lineno) == frame.f_lasti:
            lines[0] += 1
            if lines[0] == number:
                act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


IN_IMPORT = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from mq.cli.runtime import interruption
interruption.SAME_SECONDS, interruption._IMPORT_SECONDS = map(float, sys.argv[2:])
try:
    with interruption.signals():
        try:
            import is_slow
            time.sleep(30)
        finally:
            time.sleep(0.3)
            print("put in order", flush=True)
except KeyboardInterrupt as error:
    sys.exit(interruption.STATUS[interruption.number_of(error)])
"""


def imported(folder: Path, *, between: float, same: float, again: float) -> tuple[int, str]:
    """Status and output of a program that gets two signals in the import of a module.

    They are `between` seconds from each other, and the same one if less than `same`. The first
    comes `again` as often as the module is still being imported."""
    (folder / "is_slow.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        f"time.sleep({between})\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", IN_IMPORT, str(folder), str(same), str(again)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_signal_that_comes_twice_in_an_import_lets_the_command_put_in_order(
    tmp_path: Path,
) -> None:
    ended = imported(tmp_path, between=0, same=60, again=0.1)
    assert ended == (143, "put in order\n")


def test_a_second_signal_ends_an_import_too(tmp_path: Path) -> None:
    same = interruption.SAME_SECONDS
    assert imported(tmp_path, between=same + 0.01, same=same, again=60) == (-signal.SIGTERM, "")


def test_a_signal_at_any_line_of_the_beginning_and_the_end_is_an_interrupt() -> None:
    number = 0
    while True:
        number += 1
        with suppress(KeyboardInterrupt), at_line(number, {interruption.__file__}, send) as lines:
            with interruption.signals():
                pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert interruption.received() is None
        if lines[0] < number:
            break
    assert number > 10


def test_a_command_in_another_thread_leaves_the_signals_to_the_main_thread() -> None:
    began, may_end = threading.Event(), threading.Event()
    seen: list[Any] = []

    def run() -> None:
        with interruption.signals(), interruption.interrupting(lambda: seen.append("interrupted")):
            began.set()
            may_end.wait(30)
            seen.append(interruption.received())

    with interruption.signals():
        thread = threading.Thread(target=run)
        thread.start()
        assert began.wait(30)
        with pytest.raises(interruption.Interrupted):
            send()
        may_end.set()
        thread.join(30)
    assert seen == [None]


class Terminal(io.StringIO):
    """What it gets as text, and then what it gets past that."""

    def __init__(self) -> None:
        super().__init__()
        self._ours, self._its = os.pipe()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._its

    def is_given_back(self) -> bool:
        os.close(self._its)
        with open(self._ours) as past:
            text = self.getvalue() + past.read()
        screen = text.rfind("\x1b[?1049h") <= text.rfind("\x1b[?1049l")
        return screen and text.rfind("\x1b[?25l") <= text.rfind("\x1b[?25h")


def environment(terminal: Terminal) -> Environment:
    return Environment(
        stdin=io.StringIO(),
        stdout=terminal,
        stderr=terminal,
        variables={"TERM": "xterm"},
        terminal=True,
        error_terminal=True,
    )


def of_progress(surroundings: Environment) -> None:
    with progress.progress(surroundings, "verifying", total=1) as step:
        step(1)


def of_watching(surroundings: Environment) -> None:
    call = Call(surroundings, "topicList", [], "", Format.TABLE, 5, watch=86_400)

    def once() -> Any:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        watching.watch(once, call)


def test_a_signal_at_any_line_gives_the_terminal_back() -> None:
    import rich.live
    import rich.progress

    for show in (of_progress, of_watching):
        files = {progress.__file__, watching.__file__, rich.live.__file__, rich.progress.__file__}
        number = 0
        while True:
            number += 1
            terminal = Terminal()
            with interruption.signals(), suppress(KeyboardInterrupt):
                with at_line(number, files, send) as lines:
                    show(environment(terminal))
            assert terminal.is_given_back(), (show, number, terminal.getvalue())
            if lines[0] < number:
                break
        assert number > 20 and "\x1b[?25l" in terminal.getvalue()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_signal_at_any_line_of_a_round_is_the_end_of_watching() -> None:
    begun: list[int] = []

    async def command(call: Call) -> Result:
        begun.append(number)
        await asyncio.sleep(0)
        return Result()

    def start() -> Invocation:
        assert interruption.received() is None, f"it goes on after line {number}"
        return Invocation(command, call, {})

    surroundings = Environment(
        stdin=io.StringIO(), stdout=io.StringIO(), stderr=io.StringIO(), variables={}
    )
    call = Call(surroundings, "topicList", [], "", Format.JSON, 5, concurrent=True, watch=0.001)
    files = {watching.__file__, invocation.__file__, asyncio.runners.__file__}
    number = 0
    while len(begun) < 2:  # until it comes in the second round
        number += 1
        begun.clear()
        with interruption.signals(), at_line(number, files, send), suppress(KeyboardInterrupt):
            watching.watch(start, call)
    assert number > 60
