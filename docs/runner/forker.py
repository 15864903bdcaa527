"""Starts the programs of pages: each is a fork of one process that has imported what they use.

A page's `mq` is a process with its own surroundings, streams and end, as anywhere. But two thirds
of what a command takes are its imports, and pages start hundreds. That `mq` starts from nothing is
shown by the tests of the command, not by those of the documents.
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

from docs.runner.asking import ask, told

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
PROGRAMS = ("mq", "shop")


class Forked:
    """A program that was started, of which as much is known as Popen would tell."""

    def __init__(self, path: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
        read, write = os.pipe()
        self.stdout: IO[str] = os.fdopen(read)
        try:
            with open(os.devnull, "rb") as nothing:
                self._line = ask(path, words, environment, (nothing.fileno(), write, write))
        finally:
            os.close(write)
        self._process = told(self._line)
        self._status: int | None = None

    def send_signal(self, number: int) -> None:
        os.kill(self._process, number)

    def kill(self) -> None:
        """Returns when it is no more."""
        if self._status is None:
            self.send_signal(signal.SIGKILL)
            self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Its status, as Popen has it. Raises TimeoutError."""
        if self._status is None:
            self._line.settimeout(timeout)
            self._status = os.waitstatus_to_exitcode(told(self._line))
            self._line.close()
        return self._status


class Forker:
    """A context manager. What forks is started when it is needed first, and ends with this."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mq-forker-")
        self._path = f"{self._folder.name}/socket"
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()  # its standard input ends, and so does it
        self._folder.cleanup()

    def command(self, program: str) -> list[str]:
        """The words that start one of `PROGRAMS`, but for those that it is given."""
        asking = str(_HERE / "asking.py")
        return [sys.executable, "-I", "-S", asking, self._started(), program]

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> Forked:
        """Run a program. What it prints and what it says of errors are read from its `stdout`."""
        return Forked(self._started(), words, environment)

    def _started(self) -> str:
        with self._starting:
            if self._process is None:
                # As a page's environment is: what is read when Python starts and mq is imported.
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
                    raise RuntimeError("what starts the programs of pages has not started itself")
        return self._path
