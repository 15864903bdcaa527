"""Ports for peers that have to be told theirs before they start."""

import fcntl
import os
import random
import tempfile
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from mq.testing import is_free

_SHARES = 48


def _share() -> int:
    """The number of a share of the ports that no other process has, until this one ends.

    Of whatever suite: several may run on a machine. With all shares taken two processes have one.
    """
    folder = Path(tempfile.gettempdir()) / f"mq-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for number in random.sample(range(_SHARES), _SHARES):
        file = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        return number  # its file stays open, and locked
    return random.randrange(_SHARES)


def _deck() -> Iterator[int]:
    """All ports for this process in a random order, again and again.

    Below those that the system gives to outgoing connections. The order stays: a new one might give
    the last port of the order before at once again, before anybody listens there.
    """
    ports = list(range(20_002 + 4 * _share(), 32_000, 4 * _SHARES))
    random.shuffle(ports)
    return cycle(ports)


_ports = _deck()


def free_port() -> int:
    """Return a port P such that P-2 (the broker's fast port), P and P+1 (its HA port) are free."""
    for port in islice(_ports, 500):
        if all(is_free(neighbour) for neighbour in range(port - 2, port + 2)):
            return port
    raise RuntimeError("no four free ports in a row between 20000 and 32000")
