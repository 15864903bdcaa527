"""Processes that tests start and talk to."""

import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def is_readable(file: HasDescriptor, seconds: float) -> bool:
    """Whether something comes within so many seconds. select() takes no descriptor above 1023, and
    a process of the suite may have as many."""
    poll = select.poll()
    poll.register(file.fileno(), select.POLLIN)
    return bool(poll.poll(seconds * 1000))


@contextmanager
def running(
    command: Sequence[str],
    *,
    stdin: int | None = None,
    stderr: int = subprocess.PIPE,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator["subprocess.Popen[str]"]:
    """A process whose text is read from pipes; killed at the end, whatever it does."""
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
