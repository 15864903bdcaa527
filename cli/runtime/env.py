"""The surroundings of a command: streams, terminal, variables, clock.

Commands use these instead of `sys` and `os.environ`, so that tests run `mq` in process.
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
    """Something was to be written to a standard stream that was closed before the process began."""

    def __init__(self) -> None:
        super().__init__(EBADF, "standard output is closed")


class Closed(TextIOBase):
    """Such a stream. What a command has to say must not vanish there: to write fails, as in C."""

    def __init__(self) -> None:
        # Its number stays taken: a socket or a file of ours must not be standard output to anybody.
        self._place = open(os.devnull, "w")

    def write(self, text: str) -> int:
        """Raises ClosedStream, unless there is nothing to write."""
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

    `clock` returns seconds since the epoch. `terminal` says that stdout is one; `columns` and
    `lines` are its size now. `error_terminal` says that stderr is one, `input_terminal` stdin.
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
        """The surroundings of this process. Standard input that is closed is empty, standard error
        takes all, and standard output is `Closed`."""
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
        """The same surroundings, but for where output goes; nobody sees progress there."""
        other = copy(self)
        other.stdout, other.stderr, other.error_terminal = stdout, stderr, False
        return other

    def with_options(self, words: tuple[str, ...]) -> "Environment":
        """The same surroundings, in which these options stand before each command."""
        other = copy(self)
        other.before = words
        return other

    def with_input(self, stdin: TextIO) -> "Environment":
        """The same surroundings, but for where input comes from: no terminal."""
        other = copy(self)
        other.stdin, other.input_terminal = stdin, False
        return other

    def say(self, text: str) -> None:
        """Write to standard output; a terminal is shown control characters and obeys none."""
        if self.terminal:
            from mq.cli.show.visible import visible

            text = visible(text)
        self.stdout.write(text)

    def tell(self, line: str) -> None:
        """Write a line to standard error, likewise. Where that cannot be written, as after the
        terminal has gone, nobody is there to be told: the status is what the command came to."""
        if self.error_terminal:
            from mq.cli.show.visible import visible

            line = visible(line)
        with suppress(OSError):
            self.stderr.write(f"{line}\n")

    @property
    def shown(self) -> "TextIO | Visible":
        """Standard output for what others have written, such as messages: all that a pipe gets is
        exact."""
        from mq.cli.show.visible import Visible

        return Visible(self.stdout) if self.terminal else self.stdout

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal, as they are now."""
        if self._measured is not None:
            try:
                size = os.get_terminal_size(self._measured.fileno())
                return size.columns, size.lines
            except OSError:  # it has gone meanwhile
                pass
        return self._size

    @property
    def columns(self) -> int:
        """The width of the terminal, 80 where there is none."""
        return self.size[0] or 80

    @property
    def lines(self) -> int:
        """The height of the terminal, 24 where there is none."""
        return self.size[1] or 24

    @property
    def interactive(self) -> bool:
        """Whether somebody is there who can be asked: a script never is."""
        return self.input_terminal and self.terminal and self.error_terminal

    @property
    def color(self) -> bool:
        """Whether output may be coloured: on a terminal, unless NO_COLOR is set (no-color.org)."""
        return self.terminal and not self.variables.get("NO_COLOR")

    @property
    def config_directory(self) -> Path:
        """Where the user's settings of mq lie: MQ_CONFIG_DIR, or `mq` under XDG_CONFIG_HOME."""
        chosen = self.variables.get("MQ_CONFIG_DIR")
        if chosen:
            return Path(chosen)
        base = self.variables.get("XDG_CONFIG_HOME")
        home = self.variables.get("HOME")
        return (Path(base) if base else (Path(home) if home else Path.home()) / ".config") / "mq"

    @property
    def cache_directory(self) -> Path:
        """Where mq keeps what it can ask for again: MQ_CACHE_DIR, or `mq` in XDG_CACHE_HOME."""
        chosen = self.variables.get("MQ_CACHE_DIR")
        if chosen:
            return Path(chosen)
        base = self.variables.get("XDG_CACHE_HOME")
        home = self.variables.get("HOME")
        return (Path(base) if base else (Path(home) if home else Path.home()) / ".cache") / "mq"

    @property
    def state_directory(self) -> Path:
        """Where mq keeps what it may lose, such as message bodies written to files."""
        return Path(self.variables.get("MQ_STATE_DIR", "/tmp/rocketmq"))
