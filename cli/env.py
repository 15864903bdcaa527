"""The surroundings of a command: streams, terminal, variables, clock.

Commands use these instead of `sys` and `os.environ`, so that tests run `mq` in process.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO


class Environment:
    """Streams, variables and clock of one run of `mq`.

    `clock` returns seconds since the epoch. `columns` is the width of the terminal.
    """

    def __init__(
        self,
        *,
        stdin: TextIO,
        stdout: TextIO,
        stderr: TextIO,
        variables: Mapping[str, str],
        terminal: bool = False,
        columns: int = 80,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.variables = variables
        self.terminal = terminal
        self.columns = columns
        self.clock = clock

    @classmethod
    def of_process(cls) -> "Environment":
        """The surroundings of this process."""
        terminal = sys.stdout.isatty()
        return cls(
            stdin=sys.stdin,
            stdout=sys.stdout,
            stderr=sys.stderr,
            variables=os.environ,
            terminal=terminal,
            columns=os.get_terminal_size(sys.stdout.fileno()).columns if terminal else 80,
        )

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
    def state_directory(self) -> Path:
        """Where mq keeps what it may lose, such as message bodies written to files."""
        return Path(self.variables.get("MQ_STATE_DIR", "/tmp/rocketmq"))
