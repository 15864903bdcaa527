"""Backpressure: a listener's received data that cannot be served at once waits, and so do its
senders.

Data that cannot be served in this turn of the event loop waits in the backlog, so that one busy
connection does not delay the others. Reading pauses for a connection whose share of the backlog is
used up: refusing costs nearly as much as serving, so the best way to handle excess data is to leave
it with its sender. TCP makes that sender wait; connections that send little are always read.
Connections that send much are read in turn, as many at a time as can be served soon.

A send that has nevertheless waited for too long is refused (see busy_reply.py).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Set
from typing import Protocol
from weakref import WeakSet

from mq.client.machine import clock
from mq.client.machine.clock import perf_counter

LARGE = 8192  # bytes; a smaller read is served at once if nothing waits
TURN_BYTES = 256 * 1024  # limit of large reads served in one turn of the event loop
# Limit of a turn in seconds: small requests with a high cost, such as pulls, would keep the event
# loop for too long within the limit of bytes.
_TURN_SECONDS = 0.004
MOST_WAITING = 64 * 1024 * 1024  # bytes; more is left to TCP
# The backlog is limited to the data that can be served within this fraction of the longest wait, so
# that very few sends are refused; but at least to _LEAST_TARGET bytes. Without a limit of the wait,
# it is _TARGET_WITHOUT_LIMIT bytes.
_OF_LONGEST_WAIT = 0.25
_LEAST_TARGET = 2 * 1024 * 1024
_TARGET_WITHOUT_LIMIT = 8 * 1024 * 1024
_ONE_READ = 256 * 1024  # upper bound of bytes from a connection before it can be paused
_RATE_WEIGHT = 0.1  # weight of the latest turn in the average rate of bytes per second
_STALE_COST = 8  # refusing is so many times cheaper than serving


class Reader(Protocol):
    """The parts of a connection that the backlog uses."""

    waits: bool  # whether the backlog has data of it

    def throttle(self, on: bool) -> None:
        """Pause or resume reading."""

    def read(self, data: bytes, stale: bool = False) -> None:
        """Serve received data; sends in `stale` data are refused."""


class Backlog:
    """The data that a listener has read from its connections and not served yet.

    ``longest_wait`` returns the seconds after which a waiting send is refused; 0 never does.
    ``channels`` are all connections: while the backlog is ``full``, none of them is read.
    """

    def __init__(
        self,
        longest_wait: Callable[[], float],
        channels: Set["Reader"],
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._channels = channels
        self._longest_wait = longest_wait
        self._clock = clock
        self._waiting: dict[Reader, deque[tuple[bytes, float]]] = {}
        self._throttled: dict[Reader, None] = {}
        self._bytes: dict[Reader, int] = {}  # waiting bytes of each connection
        # connections whose share is used up, or that wait for their turn to be read
        self._paused: set[Reader] = set()
        self._resting: dict[Reader, None] = {}  # paused connections without waiting data
        # connections that sent much at once, and are being read
        self._greedy: WeakSet[Reader] = WeakSet()
        self._left = TURN_BYTES
        self._scheduled = False
        self._rate = 0.0  # bytes a second
        self._turned = 0.0  # end of the last turn of a busy period; 0 before the first
        self.size = 0  # waiting bytes
        self.full = False

    def keeps(self, channel: "Reader", data: bytes) -> bool:
        """Keep received data for later; False if it is to be served now."""
        pieces = self._waiting.get(channel)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)
        if pieces is None:
            if self._left > 0:
                self._left -= len(data)
                return False
            pieces = self._waiting[channel] = deque()
            channel.waits = True
        pieces.append((data, self._clock()))
        self.size += len(data)
        waiting = self._bytes[channel] = self._bytes.get(channel, 0) + len(data)
        target = self._target()
        if self.size > target:
            for each in [channel, *self._greedy]:
                self._pause(each)
        elif waiting > target // max(1, len(self._waiting)):
            self._pause(channel)
        elif channel not in self._paused:
            self._greedy.add(channel)
        if self.size > MOST_WAITING and not self.full:
            self.full = True
            for each in self._channels:
                self.throttle(each)
        return True

    def throttle(self, channel: "Reader") -> None:
        """Pause reading from a connection until there is room again."""
        self._throttled[channel] = None
        channel.throttle(True)

    def rest(self, channel: "Reader") -> list[bytes]:
        """Remove and return the waiting data of a connection that closes."""
        pieces = self._waiting.pop(channel, ())
        self._bytes.pop(channel, None)
        self._throttled.pop(channel, None)
        self._paused.discard(channel)
        self._resting.pop(channel, None)
        self._greedy.discard(channel)
        channel.waits = False
        self.size -= sum(len(data) for data, _ in pieces)
        return [data for data, _ in pieces]

    def _pause(self, channel: "Reader") -> None:
        self._greedy.discard(channel)
        if channel not in self._paused:
            self._paused.add(channel)
            channel.throttle(True)
            if channel not in self._waiting:
                self._resting[channel] = None

    def _resume(self) -> None:
        """Resume connections without waiting data, the longest paused first."""
        room = self._target() - self.size
        while self._resting and room > 0 and not self.full:
            channel = next(iter(self._resting))
            del self._resting[channel]
            self._paused.discard(channel)
            self._greedy.add(channel)
            channel.throttle(False)
            room -= _ONE_READ

    def _target(self) -> int:
        """The target size of the backlog in bytes, for all connections."""
        limit = self._longest_wait()
        target = self._rate * limit * _OF_LONGEST_WAIT if limit else _TARGET_WITHOUT_LIMIT
        return int(min(max(target, _LEAST_TARGET), MOST_WAITING))

    def _measure(self, served: int) -> None:
        """Measure the rate, over consecutive turns without a pause."""
        now = self._clock()
        if served > 0 and now > self._turned > 0.0:
            rate = served / (now - self._turned)
            self._rate += (rate - self._rate) * (_RATE_WEIGHT if self._rate else 1.0)
        self._turned = now if self._waiting else 0.0

    def _turn(self) -> None:
        """Serve waiting data, one piece of each connection in turn, until the limit of the turn."""
        self._scheduled = False
        self._left = TURN_BYTES
        limit = self._longest_wait()
        oldest = self._clock() - limit if limit else float("-inf")
        before = self.size
        until = perf_counter() + _TURN_SECONDS
        try:
            while self._waiting and self._left > 0 and perf_counter() < until:
                self._serve_next(oldest)
            if self._waiting:
                self._left = 0  # data read in this turn waits after it
        finally:
            self._measure(before - self.size)
            self._resume()
            if (self._waiting or self._resting) and not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._turn)
        if self.full and self.size < MOST_WAITING // 2:
            self.full = False
            throttled, self._throttled = self._throttled, {}
            for channel in throttled:
                if channel not in self._paused:
                    channel.throttle(False)

    def _serve_next(self, oldest: float) -> None:
        channel, pieces = next(iter(self._waiting.items()))
        del self._waiting[channel]
        data, came = pieces.popleft()
        self.size -= len(data)
        self._bytes[channel] -= len(data)
        if pieces:
            self._waiting[channel] = pieces  # after the others
        else:
            del self._bytes[channel]
            channel.waits = False
        if channel in self._paused and not pieces:
            self._resting[channel] = None
        if came < oldest:
            self._left -= len(data) // _STALE_COST
            channel.read(data, stale=True)
        else:
            self._left -= len(data)
            channel.read(data)
