"""The identity of a simulated process, and Python's sources of randomness.

Process ids, the number of cores and the address of a host are those of the simulated machine.
Counters of modules restart with each world, so that the thirtieth seed of a process equals the
first. Sets of asyncio, which are ordered by memory addresses, are kept in order.
"""

import asyncio
import asyncio.taskgroups
import os
from collections.abc import Callable
from itertools import count
from typing import Any

from mq.client.trace import dispatcher
from mq.client.transport import session
from tests.simulation import seams

_CORES = 2
_real_getpid = os.getpid


class OrderedSet(dict[Any, None]):
    """The parts of a set that asyncio.TaskGroup uses."""

    def add(self, item: Any) -> None:
        self[item] = None

    def discard(self, item: Any) -> None:
        self.pop(item, None)


def begin() -> None:
    """Called before each world."""
    session._instances = count()
    dispatcher._numbers = count(1)


def install() -> None:
    """Called once, after seams.install."""
    os.getpid = _getpid
    os.cpu_count = lambda: _CORES
    session.own_host = own_host
    asyncio.TaskGroup.__init__ = _ordered(asyncio.TaskGroup.__init__)  # type: ignore[method-assign]


def _getpid() -> int:
    world = seams.world
    process = None if world is None else world.current
    return _real_getpid() if process is None else 1000 + process.number


def own_host(endpoint: object) -> str:
    world = seams.world
    assert world is not None and world.current is not None
    return world.current.machine.address


def _ordered(init: Callable[..., None]) -> Callable[..., None]:
    def replaced(self: Any) -> None:
        init(self)
        self._tasks = OrderedSet()

    return replaced
