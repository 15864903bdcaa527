"""Ports for peers that need them before they start."""

import random
from collections.abc import Iterator
from itertools import cycle, islice

from mq.port_shares import SHARES, share
from mq.testing import is_free


def _deck() -> Iterator[int]:
    """All ports of this process in a random order, repeated endlessly.

    They are below the ephemeral ports of the system. The order stays the same: a new one could
    return the last port again at once, before its daemon listens.
    """
    ports = list(range(20_002 + 4 * share(), 32_000, 4 * SHARES))
    random.shuffle(ports)
    return cycle(ports)


_ports = _deck()


def free_port() -> int:
    """Return a port P such that P-2 (the broker's fast port), P and P+1 (its HA port) are free."""
    for port in islice(_ports, 500):
        if all(is_free(neighbour) for neighbour in range(port - 2, port + 2)):
            return port
    raise RuntimeError("no four free ports in a row between 20000 and 32000")
