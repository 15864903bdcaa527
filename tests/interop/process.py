"""A child process whose output is read line by line, with all of its descendants."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.processes import stand_still

_START_SECONDS = 90
_STOP_SECONDS = 60


class Process:
    """A child process whose output is read line by line; ends with the `with` block.

    `lines` holds its output (both streams). It ends by SIGKILL to the whole group: a test that
    needs a clean shutdown calls `stop` first.
    """

    def __init__(self, command: Sequence[str], home: Path, ready: str) -> None:
        self.command = list(command)
        self.home = home
        self.lines: list[str] = []
        self._ready = ready
        self._news = threading.Condition()
        self._ended = False
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it and return when it has printed the line that shows that it is ready."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._ended = False
        self.lines = []
        self._process = subprocess.Popen(
            [*die_with_parent(), *self.command],
            cwd=self.home,
            env={**os.environ, "HOME": str(self.home), "ROCKETMQ_HOME": str(self.home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.wait_for_line(self._ready, _START_SECONDS)
        except BaseException:
            self.kill()
            raise

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for_line(self, text: str, timeout: float = 60, count: int = 1) -> list[str]:
        """Return the lines that contain `text` once there are `count`; TimeoutError otherwise."""

        def found() -> bool:
            return sum(text in line for line in self.lines) >= count

        with self._news:
            self._news.wait_for(lambda: found() or self._ended, timeout)
            if found():
                return [line for line in self.lines if text in line]
            printed = "\n".join(self.lines[-40:])
        state = "ended" if self._ended else f"has run {timeout:.0f} s"
        raise TimeoutError(f"{self.command[-1]} {state} without {count} of {text!r}:\n{printed}")

    def write_line(self, text: str) -> None:
        """Write a line to its standard input."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def pause(self) -> None:
        """Suspend it (SIGSTOP): its machine continues to acknowledge arriving data."""
        assert self._process is not None
        stand_still(self._process.pid, os.killpg)

    def go_on(self) -> None:
        """Resume it."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def stop(self, timeout: float = _STOP_SECONDS) -> int:
        """Terminate it (SIGTERM: Java runs its shutdown hooks) and return the exit status."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(timeout)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the whole group at once (SIGKILL) and reap it. Idempotent."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass  # unread output at its end
        self._process = None

    @property
    def pid(self) -> int:
        """The process id, for tests that send other signals."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def die_with_parent() -> list[str]:
    """A command prefix that ends the child when this process is killed, if util-linux has it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
