"""Shares of ports: what two processes find free at the same moment both would take.

A process has a number that no other one of this user has as long as it lives, of whatever test run
on this machine, and takes ports of that share only.
"""

import fcntl
import functools
import os
import random
import tempfile
from pathlib import Path

#: With all of them taken, two processes have one.
SHARES = 48


def share() -> int:
    """The number of this process, from 0 to SHARES - 1."""
    return _share_of(os.getpid())  # a process that was forked off is another one


@functools.cache
def _share_of(process: int) -> int:
    folder = Path(tempfile.gettempdir()) / f"mq-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    # A seed would have processes side by side try the same ones.
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
