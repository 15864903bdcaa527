"""The screen of `mq top`: shows samples and handles keys.

The terminal is restored at any end: q, Ctrl-C, SIGTERM or an error.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from mq.cli.runtime.call import Call
from mq.cli.runtime.interruption import giving_back, is_ctrl_c, screen_back
from mq.cli.show.result import Result
from mq.cli.top.sampling import Watcher
from mq.cli.top.subjects import COLUMNS, SORTS, Subject, TopOptions
from mq.cli.top.views import History
from mq.client.errors import MQError
from mq.client.operations.columns import Column, Kind

_ENTER = "\x1b[?1049h\x1b[?25l"  # alternate screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_BRIGHT, _DULL = "\x1b[7m", "\x1b[27m"
_ESCAPE, _BACKSPACE = "\x1b", ("\x7f", "\b")
_SEQUENCES = ("[", "O")  # after an escape they start a key other than Escape
_KEYS = "q quit  ? keys  b brokers  t topics  g groups  n snodes  s sort  r reverse  / filter"
_KEYS_PAGE = (
    "Keys of mq top",
    "",
    "  b  t  g  n   brokers, topics, groups, snodes",
    "  s            sort by the next column, marked with *",
    "  r            reverse the order",
    "  /            filter by a text in names; Enter ends it, Esc shows all",
    "  space        pause, resume",
    "  ?  h         this page",
    "  q  Ctrl-C    quit",
    "",
    "Any key closes this page.",
)
# The columns that a narrow screen omits, in this order.
_SPARED = (
    *("brokerAddr", "brokerId", "producers", "consumers", "responseMillis"),
    *("privateBytes", "cores", "replicationLagBytes", "topics", "groups"),
)
_SUBJECTS = {"b": Subject.BROKERS, "t": Subject.TOPICS, "g": Subject.GROUPS, "n": Subject.SNODES}
# Names are untrusted: their control characters must not reach the terminal.
_UNSEEN = {code: "?" for code in (*range(32), *range(0x7F, 0xA0))}


class Screen:
    """Shows samples until the user quits, or until there were `count` of them."""

    def __init__(self, call: Call, watcher: Watcher, wish: TopOptions) -> None:
        self._call = call
        self._watcher = watcher
        self._subject = wish.subject
        self._interval = wish.interval
        self._left = wish.count
        self._pattern = wish.pattern
        self._typing = False
        self._explaining = False  # the page of keys covers the view
        self._paused = False
        self._quit = False
        self._failure: Exception | None = None  # the error of a key's action
        self._problem = ""
        self._sort = call.view.sort or (SORTS[wish.subject],)
        self._history = History()
        self._shown: Result | None = None
        self._changed = asyncio.Event()  # the screen must be redrawn
        self._hurry = asyncio.Event()  # do not wait for the interval

    async def run(self) -> Result:
        """Show samples; returns the last one as shown. Raises the errors of the first sample."""
        await self._sample()
        polling = asyncio.ensure_future(self._poll())
        try:
            with _keys(self._call, self._take), _own_screen(self._call), self._signals():
                while not (self._quit or polling.done()):
                    self._draw()
                    self._changed.clear()
                    waiting = asyncio.ensure_future(self._changed.wait())
                    await asyncio.wait({waiting, polling}, return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
        except asyncio.CancelledError:  # Ctrl-C is a normal end
            if not is_ctrl_c():
                raise
        finally:
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling
        if self._failure is not None:
            raise self._failure
        return self._shown or Result()

    async def _poll(self) -> None:
        while self._left is None or self._left > 0:
            # Not wait_for: before Python 3.12 it loses a cancellation that coincides with the
            # event.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._hurry.wait()
            asked_for = self._hurry.is_set()  # the new view has no sample yet
            self._hurry.clear()
            if asked_for or not self._paused:
                await self._sample()

    async def _sample(self) -> None:
        subject = self._subject
        try:
            sample = await self._watcher.sample(subject, self._is_wanted)
        except MQError as error:
            if not self._history:
                raise
            self._problem = str(error)
        else:
            self._problem = ""
            if subject is not self._subject:
                return  # another view was selected meanwhile
            self._history.add(sample)
        if self._left is not None and len(self._history) > 1:
            self._left -= 1
        self._refresh()

    def _is_wanted(self, name: str) -> bool:
        return self._pattern.lower() in name.lower()

    def _refresh(self) -> None:
        """Rebuild the displayed result."""
        if self._history:
            result = self._history.result(self._subject, self._is_wanted)
            view = replace(self._call.view, sort=self._sort, columns=self._columns())
            self._shown = view.apply(result)
        self._changed.set()

    def _columns(self) -> tuple[str, ...]:
        return self._call.view.columns or tuple(
            column.name for column in COLUMNS[self._subject] if column.title
        )

    # Keys.

    def _take(self, keys: str) -> None:
        """Handle keys. An error ends the screen: the event loop would only log it."""
        try:
            self._pressed(keys)
        except Exception as error:
            self._failure, self._quit = error, True
            self._changed.set()

    def _pressed(self, keys: str) -> None:
        for place, key in enumerate(keys):
            if self._explaining:
                self._explaining = False
                if key == _ESCAPE:
                    break  # the rest belongs to an arrow or function key
            elif self._typing:
                self._typed(key)
            elif key in "?hH":
                self._explaining = True
            elif key in _SUBJECTS:
                self._choose(_SUBJECTS[key])
            elif key in "qQ\x04":
                self._quit = True
            elif key == "s":
                self._sort = (self._next_column(),)
            elif key == "r":
                name = self._sort[0]
                self._sort = (name[1:] if name.startswith("-") else f"-{name}",)
            elif key == "/":
                self._typing, self._pattern = True, ""
            elif key == " ":
                self._paused = not self._paused
            elif key == _ESCAPE:
                if keys[place + 1 : place + 2] in _SEQUENCES:
                    break  # an arrow or function key, which has no action here
                self._pattern = ""
                self._hurry.set()
        self._refresh()

    def _typed(self, key: str) -> None:
        if key in "\r\n":
            self._typing = False
            self._hurry.set()
        elif key == _ESCAPE:
            self._typing, self._pattern = False, ""
            self._hurry.set()
        elif key in _BACKSPACE:
            self._pattern = self._pattern[:-1]
        elif key.isprintable():
            self._pattern += key

    def _choose(self, subject: Subject) -> None:
        if subject is self._subject:
            return
        self._subject = subject
        self._sort = (SORTS[subject],)
        self._call.view = replace(self._call.view, columns=())  # they belong to the other view
        self._history.clear()
        self._shown = None
        self._hurry.set()

    def _next_column(self) -> str:
        """Return the column after the sorted one; numbers in descending order."""
        columns = [column for column in COLUMNS[self._subject] if column.title]
        names = [column.name for column in columns]
        current = self._sort[0].removeprefix("-")
        place = names.index(current) + 1 if current in names else 0
        column = columns[place % len(columns)]
        return f"-{column.name}" if column.kind is Kind.NUMBER else column.name

    # Drawing.

    def _draw(self) -> None:
        environment = self._call.environment
        width, height = environment.columns, environment.lines
        if self._explaining:
            lines = [line[:width] for line in _KEYS_PAGE[: height - 1]]
            return self._paint(lines + [""] * (height - len(lines)))
        lines = [self._head(width), *self._facts(), ""]
        place = len(lines)  # the line of the titles
        result = self._shown
        if result is None:
            lines.append("sampling …")
        else:
            table = self._table(result, width)
            room = max(1, height - len(lines) - 3)
            lines += table[: room + 1]
            if len(table) > room + 1:
                lines.append(f"… {len(table) - room - 1} more: / filters, s sorts")
        lines = [line[:width] for line in lines[: height - 1]]
        lines += [""] * (height - 1 - len(lines))
        if result is not None and place < len(lines):
            lines[place] = f"{_BRIGHT}{lines[place]}{_DULL}"
        self._paint([*lines, self._foot()[:width]])

    def _paint(self, lines: list[str]) -> None:
        stdout = self._call.environment.stdout
        stdout.write("\x1b[H" + "\x1b[K\n".join(lines) + "\x1b[K\x1b[J")
        stdout.flush()

    def _head(self, width: int) -> str:
        what = f"mq top: {self._subject.value}, every {self._interval:g} s"
        if self._pattern and not self._typing:
            what += f", with {self._pattern!r}"
        if self._paused:
            what += " - paused"
        when = time.strftime("%H:%M:%S", time.localtime(self._call.environment.clock()))
        return f"{what}{when:>{max(10, width - len(what))}}"

    def _facts(self) -> list[str]:
        result = self._shown
        if result is None:
            return [""]
        totals = result.totals
        facts = (
            f"{totals['brokers']} brokers, {totals['unreachable']} unreachable   "
            f"in {shown('inTps', totals['inTps'])}/s, "
            f"{shown('inBytesPerSecond', totals['inBytesPerSecond'])}/s   "
            f"out {shown('outTps', totals['outTps'])}/s"
        )
        problems = [self._problem] if self._problem else result.failures
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return [facts, *(f"! {_plain(problem)}{more}" for problem in problems[:1])]

    def _foot(self) -> str:
        return f"filter: {self._pattern}_" if self._typing else _KEYS

    def _table(self, result: Result, width: int) -> list[str]:
        """Return the head and the rows; columns are as wide as their content, names are never
        cut."""
        sorted_by = self._sort[0].removeprefix("-")
        head = [
            f"{column.title}{'*' if column.name == sorted_by else ''}" for column in result.columns
        ]
        rows = [
            [shown(column.name, value) for column, value in zip(result.columns, row, strict=True)]
            for row in result.rows
        ]
        widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
        kept = _fitting(result.columns, widths, width, chosen=bool(self._call.view.columns))
        return [_line(result.columns, cells, widths, kept) for cells in (head, *rows)]

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Redraw when the size of the terminal changes."""
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        except (ValueError, RuntimeError, NotImplementedError):  # not in the main thread
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _own_screen(call: Call) -> Iterator[None]:
    stdout = call.environment.stdout
    stdout.write(_ENTER)
    try:
        with giving_back(lambda: screen_back(stdout)):
            yield
    finally:
        stdout.write(_LEAVE)
        stdout.flush()


@contextmanager
def _keys(call: Call, pressed: Any) -> Iterator[None]:
    """Call `pressed` with typed text; does nothing without a terminal."""
    if not call.environment.input_terminal:
        yield
        return
    import termios
    import tty

    try:
        descriptor = call.environment.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, termios.error):
        yield
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            typed = os.read(descriptor, 256)
        except OSError:
            typed = b""
        if not typed:  # the terminal was closed: drawing fails
            loop.remove_reader(descriptor)
        pressed(typed.decode("utf-8", "ignore"))

    def back() -> None:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(descriptor, termios.TCSANOW, before)

    tty.setcbreak(descriptor, termios.TCSANOW)
    try:
        with giving_back(back):
            loop.add_reader(descriptor, read)
            yield
    finally:
        loop.remove_reader(descriptor)
        back()


def _fitting(
    columns: tuple[Column, ...], widths: list[int], room: int, *, chosen: bool
) -> list[int]:
    """Return the positions of the columns that fit; all if they were selected."""
    kept = list(range(len(columns)))
    for name in () if chosen else _SPARED:
        if sum(widths[place] + 2 for place in kept) - 2 <= room:
            break
        kept = [place for place in kept if columns[place].name != name]
    return kept


def _line(columns: tuple[Column, ...], cells: list[str], widths: list[int], kept: list[int]) -> str:
    return "  ".join(
        f"{cells[place]:>{widths[place]}}"
        if columns[place].kind is Kind.NUMBER
        else f"{cells[place]:<{widths[place]}}"
        for place in kept
    ).rstrip()


def _plain(text: str) -> str:
    return text.translate(_UNSEEN)


def shown(name: str, value: Any) -> str:
    """Return a value for the display: 1,234  12.3 MB  45 %."""
    if value is None:
        return "-"
    if name == "diskRatio":
        return f"{value * 100:.0f} %"
    if name.endswith(("BytesPerSecond", "Bytes")):
        return _size(value)
    if name == "cores":
        return f"{value:.2f}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else _plain(str(value))


def _size(value: float) -> str:
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"
