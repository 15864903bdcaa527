"""`--watch SECONDS`: repeats a command.

At a terminal every round replaces the last one, as in watch(1), without flicker. In a pipe the
results follow each other; in JSON one document per line.

Ctrl-C is the normal end: as with watch(1) the exit status is 0, unless the last round failed, whose
status it then is. A failed round does not end it, because brokers may come back; an error of the
command line or configuration does.
"""

import io
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from mq.cli.runtime.call import Call
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.interruption import giving_back, raise_if_received, screen_back, whole
from mq.cli.runtime.invocation import Invocation, show_all
from mq.cli.runtime.status import Status
from mq.cli.show.output import Printer
from mq.client.operations.plurals import counted

# The number of characters that a screen keeps of a round, which may be a whole topic; it shows only
# a few lines.
MAX_KEPT = 1024 * 1024

_CUT_CODE = re.compile(r"\x1b(\[[\d;]*)?\Z")  # an incomplete style sequence

# Errors that a further round cannot resolve.
_FINAL = frozenset((Status.USAGE, Status.CONFIG, Status.INTERNAL))


def watch(start: Callable[[], Invocation], call: Call) -> int:
    """Run rounds until Ctrl-C, and return the status of the last complete one."""
    period = call.watch
    assert period is not None
    status = 0
    screen = _Screen(call) if call.environment.terminal else _Stream(call)
    try:
        with whole(screen):
            due = time.monotonic()
            while True:
                status = screen.round(start)
                raise_if_received()
                due = max(due + period, time.monotonic())
                _wait_until(due)
    except KeyboardInterrupt:
        return status


def _wait_until(due: float) -> None:
    while (left := due - time.monotonic()) > 0:
        time.sleep(left)


def _round(
    start: Callable[[], Invocation],
    printer: Printer,
    environment: Environment,
    shown: Callable[[], None] = lambda: None,
) -> int:
    """Run one round; `shown` is called after each result. Transient errors are printed.

    Errors of the output itself are raised: half of a round is lost, and the next one would be
    appended to the rest.
    """
    try:
        return show_all(start(), printer, shown)
    except BrokenPipeError:
        raise
    except Exception as error:
        if printer.failed:
            raise
        from mq.cli.runtime.explain import explain

        shown_error = error if isinstance(error, CommandError) else explain(error, environment)
        if shown_error.status in _FINAL:
            raise shown_error from error
        environment.report(f"mq: {shown_error.message}")
        return shown_error.status


class _Stream(nullcontext[None]):
    """Prints rounds one after the other."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._environment = call.environment
        self._printer = Printer(
            call.environment, call.name, call.output, view=call.view, ongoing=True, every=True
        )

    def round(self, start: Callable[[], Invocation]) -> int:
        return _round(start, self._printer, self._environment)


class _Beginning(io.StringIO):
    """Keeps the start of the written text, and counts the lines of the rest.

    A line that is cut in the middle is counted, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self._left = MAX_KEPT
        self._is_cut = False
        self._ends = 0
        self._is_open = False  # the last line of the rest is incomplete

    def write(self, text: str) -> int:
        kept = text[: self._left]
        self._left -= len(kept)
        super().write(kept)
        if len(kept) < len(text):
            self._is_cut = True
            self._ends += text.count("\n", len(kept))
            self._is_open = not text.endswith("\n")
        return len(text)

    def text(self) -> str:
        """Return the kept text, with a line about the rest."""
        if not self._is_cut:
            return self.getvalue()
        kept = self.getvalue()
        if "\x1b" in kept:  # a style may be active, or cut
            kept = f"{_CUT_CODE.sub('', kept)}\x1b[0m"
        rest = f"{counted(self._ends + self._is_open, 'line')} more; for all, leave out --watch"
        return f"{kept}\n… {rest}\n"


class _Screen(AbstractContextManager[None]):
    """Draws rounds over each other on the alternate screen; the last one stays afterwards."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._text = ""

    def __enter__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        environment = self._call.environment
        console = Console(
            file=environment.stdout,
            force_terminal=True,
            width=environment.columns,
            height=environment.lines,
            no_color=not environment.color,
            highlight=False,
        )
        self._console = console
        self._live = Live(console=console, screen=True, auto_refresh=False)
        self._parts = ExitStack()
        with self._parts:
            self._parts.enter_context(giving_back(lambda: screen_back(environment.stdout)))
            self._parts.enter_context(self._live)
            self._parts = self._parts.pop_all()

    def __exit__(self, *exc: Any) -> None:
        self._parts.__exit__(*exc)
        if self._text:
            self._call.environment.stdout.write(self._text)

    def round(self, start: Callable[[], Invocation]) -> int:
        from rich.console import ConsoleDimensions

        call = self._call
        width, height = call.environment.columns, call.environment.lines
        self._console.size = ConsoleDimensions(width, height)
        buffer = _Beginning()
        environment = call.environment.writing_to(buffer, buffer)
        printer = Printer(environment, call.name, call.output, view=call.view)

        def shown() -> None:
            self._text = buffer.text()
            self._draw(width, height)

        status = _round(start, printer, environment, shown)
        shown()
        return status

    def _draw(self, width: int, height: int) -> None:
        from rich.text import Text

        call = self._call
        head = f"every {call.watch:g} s: mq {call.name}"
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(call.environment.clock()))
        lines = self._text.splitlines()
        if len(lines) > height - 2:
            lines = [*lines[: height - 3], f"… {len(lines) - height + 3} more lines"]
        gap = max(1, width - len(head) - len(when) - 1)
        text = Text(f"{head}{' ' * gap}{when}\n", no_wrap=True, overflow="crop")
        for line in lines:
            text.append("\n").append_text(Text.from_ansi(line))
        self._live.update(text, refresh=True)
