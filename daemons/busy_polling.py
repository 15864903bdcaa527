"""Busy polling: after a request the event loop polls for the next one for a moment instead of
sleeping.

A client that waits for each reply sends its next request about ten microseconds after it. If the
process sleeps in epoll by then it must be woken, which takes longer than the request itself, most
of all on a virtual machine whose processor has halted (docs/decisions/0071).
"""

import asyncio
import sys
from collections.abc import Callable

from mq.client.machine import clock
from mq.client.machine.processors import available

# If polling never helps, it pauses for at most 2**12 = 4096 requests.
_MOST_MISSES = 12
# The cost of one miss, which as many hits make up for: polling continues if seven of eight polls
# are hits. With fewer, polling takes more time than waking up. The same holds if each hit comes in
# the last quarter of the time, so such a hit has a small cost, too.
_MISS = 7
_LATE = 1


class BusyPolling:
    """Polls for the next request of a port for ``seconds()``; 0 disables it.

    Only uvloop polls, because its turns are very cheap, and only if another processor can run the
    client meanwhile and polling does not use up a CPU quota.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.is_polling = False
        self._arrived = False  # a request has arrived since
        self._seconds = seconds
        self._span = 0.0
        self._began = 0.0  # start of the current poll; 0 before it
        self._polled = 0.0  # time of the last poll
        self._is_first = False
        # misses that hits have not made up for; the pause is two to the power of it
        self._misses = 0
        self._pause = 0  # requests until the next attempt
        self._loop: asyncio.AbstractEventLoop | None = None
        self._can_poll = False

    def served(self) -> None:
        """Note that a whole request has arrived; parts of one must not prolong polling."""
        if self.is_polling:
            self._arrived = True
        elif self._pause:
            self._pause -= 1
        else:
            self._begin()

    def _begin(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._can_poll = _helps(self._loop)
        self._span = self._seconds()
        if not self._span or not self._can_poll:
            self._pause = 2**_MOST_MISSES
            return
        self.is_polling = self._is_first = True
        self._began = self._polled = 0.0
        self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """Poll once per turn of the event loop, which does not sleep before it."""
        now = clock.monotonic()
        if self._is_first:  # a request of the previous turn was not waited for
            self._is_first = self._arrived = False
        if self._arrived:
            self._arrived = False
            self._hit()
        elif not self._began:  # the work of the last request is done
            self._began = self._polled = now
        elif now - self._began >= self._span:
            self._rest(_MISS)
        else:
            self._polled = now
        if self.is_polling:
            assert self._loop is not None
            self._loop.call_soon(self._poll)

    def _hit(self) -> None:
        """Count a hit, and poll for the next request."""
        is_late = self._polled - self._began > 3 / 4 * self._span
        self._misses = max(0, self._misses + (_LATE if is_late else -1))
        self._span = self._seconds()  # there may be no miss as long as requests arrive
        self._began = self._polled = 0.0
        if not self._span or self._misses > _MOST_MISSES:
            self._rest(0)

    def _rest(self, cost: int) -> None:
        """Pause until as many requests have arrived as the misses stand for."""
        self.is_polling = False
        self._misses = min(self._misses + cost, _MOST_MISSES)
        self._pause = 2**self._misses


def _helps(loop: asyncio.AbstractEventLoop) -> bool:
    uvloop = sys.modules.get("uvloop")  # must be loaded if the loop is its own
    return uvloop is not None and isinstance(loop, uvloop.Loop) and available() >= 2
