"""Starts the programs of pages: each is a fork of one process that has imported their modules.

A page's `mq` is a process with its own environment, streams and exit, as usual. But imports take
two thirds of the time of a command, and pages start hundreds. That `mq` starts from scratch is
tested by the tests of the command, not by those of the documents.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from docs.runner.asking import ask, received

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
PROGRAMS = ("mq", "shop")


class Forked:
    """A started program, with an interface like that of Popen."""

    def __init__(self, path: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        read, write = os.pipe()
        self.stdout: IO[str] = os.fdopen(read)
        try:
            with open(os.devnull, "rb") as nothing:
                self._line = ask(path, words, environment, (nothing.fileno(), write, write))
        finally:
            os.close(write)
        self._process = received(self._line)
        self._status: int | None = None

    def send_signal(self, number: int) -> None:
        os.kill(self._process, number)

    def kill(self) -> None:
        """Kill it, and wait until it has ended."""
        if self._status is None:
            self.send_signal(signal.SIGKILL)
            self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Return its status, as Popen does. Raises TimeoutError."""
        if self._status is None:
            self._line.settimeout(timeout)
            self._status = os.waitstatus_to_exitcode(received(self._line))
            self._line.close()
        return self._status


class Forker:
    """A context manager. The forking process is started on first use, and ends with this object."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mq-forker-")
        self._path = f"{self._folder.name}/socket"
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()  # closes its standard input, which ends it
        self._folder.cleanup()

    def command(self, program: str) -> list[str]:
        """Return the words that start one of `PROGRAMS`, without its arguments."""
        asking = str(_HERE / "asking.py")
        return [sys.executable, "-I", "-S", asking, self._started(), program]

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> Forked:
        """Run a program. Its output and errors are read from its `stdout`."""
        return Forked(self._started(), words, environment)

    def _started(self) -> str:
        with self._starting:
            if self._process is None:
                # The environment of a page, which Python and mq read when they start.
                kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "docs.runner.forking", self._path],
                    cwd=_ROOT,
                    env={**kept, "PYTHONUTF8": "1"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
                assert self._process.stdout is not None
                if not self._process.stdout.readline():
                    raise RuntimeError("the process that starts programs of pages did not start")
        return self._path
