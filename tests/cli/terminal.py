"""Runs `mq` at a terminal of its own."""

import os
import pty
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress


def at_terminal(
    arguments: list[str],
    variables: Mapping[str, str],
    ready: bytes,
    act: Callable[[subprocess.Popen[bytes], int], None],
    *,
    lines: int = 24,
    seconds: float = 60,
) -> tuple[int, bytes]:
    """Wait until `mq` shows `ready`, act on the process and its terminal, wait for its end.

    The terminal has 80 columns and this number of lines. Returns its status and all output. A
    process that does not end within this number of seconds is killed, which its status shows.
    """
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (lines, 80))
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "mq", *arguments],
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", **variables},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        ) as process:
            os.close(its)
            shown = b""
            late = threading.Timer(seconds, process.kill)
            late.start()
            try:
                while ready not in shown:
                    shown += os.read(ours, 4096)
                act(process, ours)
                with suppress(OSError):  # how Linux says that the other side has closed a terminal
                    while data := os.read(ours, 4096):
                        shown += data
                process.wait()
            finally:
                late.cancel()
                process.kill()
        return process.returncode, shown
    finally:
        os.close(ours)
