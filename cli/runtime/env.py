"""The environment of a command: streams, terminal, variables, clock.

Commands use it instead of `sys` and `os.environ`, so that tests can run `mq` in process.
"""

import codecs
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from errno import EBADF
from io import TextIOBase, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from mq.cli.show.visible import Visible


class ClosedStream(OSError):
    """A write to a standard stream that was closed before the process started."""

    def __init__(self) -> None:
        super().__init__(EBADF, "standard output is closed")


class Closed(TextIOBase):
    """A closed standard stream. As in C, writes fail, so that output is not lost silently."""

    def __init__(self) -> None:
        # Its descriptor stays in use: a socket or file must not become standard output.
        self._place = open(os.devnull, "w")

    def write(self, text: str) -> int:
        """Raise ClosedStream, unless the text is empty."""
        if text:
            raise ClosedStream
        return 0


def _escape_unencodable(stream: TextIO) -> None:
    """Write characters that the encoding of the locale lacks as `\\uXXXX`, which JSON allows."""
    if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
        codecs.register_error("mq-escape", _escape)
        stream.reconfigure(errors="mq-escape")


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


class Environment:
    """Streams, variables and clock of one run of `mq`.

    `clock` returns seconds since the epoch. `terminal` is whether stdout is one; `columns` and
    `lines` are its current size. `error_terminal` is whether stderr is one, `input_terminal` stdin.
    """

    def __init__(
        self,
        *,
        stdin: TextIO,
        stdout: TextIO,
        stderr: TextIO,
        variables: Mapping[str, str],
        terminal: bool = False,
        error_terminal: bool = False,
        input_terminal: bool = False,
        columns: int = 80,
        lines: int = 24,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.variables = variables
        self.terminal = terminal
        self.error_terminal = error_terminal
        self.input_terminal = input_terminal
        self.clock = clock
        self.before: tuple[str, ...] = ()  # options before each command: those of `mq shell`
        self._size = (columns, lines)
        self._measured: TextIO | None = None

    @classmethod
    def of_process(cls) -> "Environment":
        """Return the environment of this process.

        A closed standard input is empty, a closed standard error accepts everything, and a closed
        standard output is `Closed`.
        """
        stdin = sys.stdin or open(os.devnull)
        stdout = sys.stdout or cast("TextIO", Closed())
        _escape_unencodable(stdout)
        stderr = sys.stderr or open(os.devnull, "w")
        found = cls(
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            variables=os.environ,
            terminal=stdout.isatty(),
            error_terminal=stderr.isatty(),
            input_terminal=stdin.isatty(),
        )
        if found.terminal or found.error_terminal:
            found._measured = stdout if found.terminal else stderr
        elif (columns := os.environ.get("COLUMNS", "")).isdecimal():
            found._size = (int(columns), 24)
        return found

    def writing_to(self, stdout: TextIO, stderr: TextIO) -> "Environment":
        """Return the same environment with other outputs, which show no progress."""
        other = copy(self)
        other.stdout, other.stderr, other.error_terminal = stdout, stderr, False
        return other

    def with_options(self, words: tuple[str, ...]) -> "Environment":
        """Return the same environment with these options before each command."""
        other = copy(self)
        other.before = words
        return other

    def with_input(self, stdin: TextIO) -> "Environment":
        """Return the same environment with another input, which is not a terminal."""
        other = copy(self)
        other.stdin, other.input_terminal = stdin, False
        return other

    def say(self, text: str) -> None:
        """Write to standard output; control characters are escaped at a terminal."""
        if self.terminal:
            from mq.cli.show.visible import visible

            text = visible(text)
        self.stdout.write(text)

    def report(self, line: str) -> None:
        """Write a line to standard error; control characters are escaped at a terminal.

        Errors of the write are ignored, as after the terminal is closed: the exit status remains.
        """
        if self.error_terminal:
            from mq.cli.show.visible import visible

            line = visible(line)
        with suppress(OSError):
            self.stderr.write(f"{line}\n")

    @property
    def shown(self) -> "TextIO | Visible":
        """Standard output for untrusted text, such as messages: escaped at a terminal, exact in a
        pipe."""
        from mq.cli.show.visible import Visible

        return Visible(self.stdout) if self.terminal else self.stdout

    @property
    def size(self) -> tuple[int, int]:
        """Current columns and lines of the terminal."""
        if self._measured is not None:
            try:
                size = os.get_terminal_size(self._measured.fileno())
                return size.columns, size.lines
            except OSError:  # it was closed meanwhile
                pass
        return self._size

    @property
    def columns(self) -> int:
        """The width of the terminal, 80 without one."""
        return self.size[0] or 80

    @property
    def lines(self) -> int:
        """The height of the terminal, 24 without one."""
        return self.size[1] or 24

    @property
    def interactive(self) -> bool:
        """Whether a user can be asked; in scripts always False."""
        return self.input_terminal and self.terminal and self.error_terminal

    @property
    def color(self) -> bool:
        """Whether to use color: at a terminal, unless NO_COLOR is set (no-color.org)."""
        return self.terminal and not self.variables.get("NO_COLOR")

    @property
    def config_directory(self) -> Path:
        """The directory of mq's configuration: MQ_CONFIG_DIR, or `mq` under XDG_CONFIG_HOME."""
        chosen = self.variables.get("MQ_CONFIG_DIR")
        if chosen:
            return Path(chosen)
        base = self.variables.get("XDG_CONFIG_HOME")
        home = self.variables.get("HOME")
        return (Path(base) if base else (Path(home) if home else Path.home()) / ".config") / "mq"

    @property
    def cache_directory(self) -> Path:
        """The directory of mq's cache: MQ_CACHE_DIR, or `mq` in XDG_CACHE_HOME."""
        chosen = self.variables.get("MQ_CACHE_DIR")
        if chosen:
            return Path(chosen)
        base = self.variables.get("XDG_CACHE_HOME")
        home = self.variables.get("HOME")
        return (Path(base) if base else (Path(home) if home else Path.home()) / ".cache") / "mq"

    @property
    def state_directory(self) -> Path:
        """The directory of files that may be lost, such as message bodies."""
        return Path(self.variables.get("MQ_STATE_DIR", "/tmp/rocketmq"))
