"""Busy polling: for a moment behind a request the loop looks for the next one and does not sleep.

A client that waits for each reply sends its next request some ten microseconds behind it. A process
that sleeps in epoll by then has to be woken, which takes longer than the request does, most of all
on a virtual machine, whose processor has halted (docs/decisions/0071).
"""

import asyncio
import sys
from collections.abc import Callable

from mq.client.machine import clock
from mq.client.machine.processors import available

# Where it never helps nothing is tried for 4096 requests.
_MOST_MISSES = 12
# What one miss costs, and as many hits make up for: it goes on where seven of eight are hits. Where
# fewer are, more time is spent on looking than on being woken. So it is where each comes in the
# last quarter of the time: such a hit costs a little, too.
_MISS = 7
_LATE = 1


class BusyPolling:
    """The loop of a port looks for ``seconds()`` for the next request; 0 for not at all.

    Only uvloop's does, of which a turn costs next to nothing, and only where another processor can
    make the request meanwhile, and no quota is used up by looking.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.is_looking = False
        self._heard = False  # a request has come meanwhile
        self._seconds = seconds
        self._span = 0.0
        self._began = 0.0  # when the next request was looked for in vain first, 0 for not yet
        self._looked = 0.0  # and when last
        self._is_first = False
        self._misses = 0  # that hits have not made up for: two to the power of it is the pause
        self._pause = 0  # requests to come before the next attempt
        self._loop: asyncio.AbstractEventLoop | None = None
        self._can_look = False

    def served(self) -> None:
        """A whole request has come: what is less must not keep us looking."""
        if self.is_looking:
            self._heard = True
        elif self._pause:
            self._pause -= 1
        else:
            self._begin()

    def _begin(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._can_look = _helps(self._loop)
        self._span = self._seconds()
        if not self._span or not self._can_look:
            self._pause = 2**_MOST_MISSES
            return
        self.is_looking = self._is_first = True
        self._began = self._looked = 0.0
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Once a turn of the loop, which does not sleep before."""
        now = clock.monotonic()
        if self._is_first:  # what came in the turn before was not waited for
            self._is_first = self._heard = False
        if self._heard:
            self._heard = False
            self._has_come()
        elif not self._began:  # what there was to do for the last one is done
            self._began = self._looked = now
        elif now - self._began >= self._span:
            self._rest(_MISS)
        else:
            self._looked = now
        if self.is_looking:
            assert self._loop is not None
            self._loop.call_soon(self._look)

    def _has_come(self) -> None:
        """What was looked for: count it, and look for the next one."""
        is_late = self._looked - self._began > 3 / 4 * self._span
        self._misses = max(0, self._misses + (_LATE if is_late else -1))
        self._span = self._seconds()  # there may be no miss for as long as somebody sends
        self._began = self._looked = 0.0
        if not self._span or self._misses > _MOST_MISSES:
            self._rest(0)

    def _rest(self, cost: int) -> None:
        """Look no more until so many requests have come as the misses stand for."""
        self.is_looking = False
        self._misses = min(self._misses + cost, _MOST_MISSES)
        self._pause = 2**self._misses


def _helps(loop: asyncio.AbstractEventLoop) -> bool:
    uvloop = sys.modules.get("uvloop")  # whose loop it can only be when it is loaded
    return uvloop is not None and isinstance(loop, uvloop.Loop) and available() >= 2
