"""Runs `mq` at a terminal of its own."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping


def at_terminal(
    arguments: list[str],
    variables: Mapping[str, str],
    ready: bytes,
    act: Callable[[subprocess.Popen[bytes], int], None],
) -> tuple[int, bytes]:
    """Wait until `mq` shows `ready`, act on the process and its terminal, wait for its end.

    Returns its status and all that it has shown.
    """
    ours, its = pty.openpty()
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
            try:
                while ready not in shown:
                    shown += os.read(ours, 4096)
                act(process, ours)
            except BaseException:
                process.kill()
                raise
            try:
                while data := os.read(ours, 4096):
                    shown += data
            except OSError:  # how Linux says that the other side has closed a terminal
                pass
        return process.returncode, shown
    finally:
        os.close(ours)
