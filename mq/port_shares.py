"""Shares of ports: otherwise two processes could find the same port free and both try to use it.

A process has a number that is unique among this user's running processes on this machine, across
test runs, and uses only ports of that share.
"""

import fcntl
import functools
import os
import random
import tempfile
from pathlib import Path

#: If all are in use, two processes share one.
SHARES = 48


def share() -> int:
    """Return the number of this process, from 0 to SHARES - 1."""
    return _share_of(os.getpid())  # a forked process gets its own


@functools.cache
def _share_of(process: int) -> int:
    folder = Path(tempfile.gettempdir()) / f"mq-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    # With a seed, concurrent processes would try the same ones.
    order = random.SystemRandom().sample(range(SHARES), SHARES)
    for number in order:
        file = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        return number  # its file stays open, and locked
    return order[0]
