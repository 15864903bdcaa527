"""Processes that tests start and talk to."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def is_readable(file: HasDescriptor, seconds: float) -> bool:
    """Whether data arrives within so many seconds. select() accepts no descriptor above 1023, and a
    process of the suite may have more.
    """
    poll = select.poll()
    poll.register(file.fileno(), select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def stand_still(pid: int, send: Callable[[int, int], None] = os.kill) -> None:
    """Stop a process (SIGSTOP), and return when no thread of it runs: after the signal threads
    continue until one of them gets a processor and handles it.
    """
    send(pid, signal.SIGSTOP)
    while not _stands_still(pid):  # there is no event for a grandchild
        time.sleep(0.001)


def _stands_still(pid: int) -> bool:
    """Whether each thread is stopped, or has ended."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (thread / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if status.rpartition(")")[2].split()[0] not in ("T", "Z", "X"):
            return False
    return True


@contextmanager
def running(
    command: Sequence[str],
    *,
    stdin: int | None = None,
    stderr: int = subprocess.PIPE,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator["subprocess.Popen[str]"]:
    """A process whose text is read from pipes; killed at the end in any case."""
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=cwd,
        env=env,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
