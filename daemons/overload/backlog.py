"""Backpressure: what a listener has read and cannot serve at once waits, and its senders with it.

What was read and cannot be served in this turn of the loop waits here, so that one busy connection
does not hold up the others. A connection that has its share waiting is not read from: refusing
costs nearly as much as serving, so the best that can be done with more than can be served is to
leave it with its sender. TCP tells that one to wait; who sends little is read all the while. Of
many that send much each is read in turn, as many at a time as what they bring can be served soon.

A send that has waited for too long all the same is refused (see busy_reply.py).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Set
from typing import Protocol
from weakref import WeakSet

from mq.client.machine import clock
from mq.client.machine.clock import perf_counter

LARGE = 8192  # bytes; a smaller read is served at once where nothing waits
TURN_BYTES = 256 * 1024  # served in one turn of the loop, of large reads
# And no piece more after so many seconds: of requests that are small and cost much, such as pulls,
# these bytes keep the loop for longer than others should wait.
_TURN_SECONDS = 0.004
MOST_WAITING = 64 * 1024 * 1024  # bytes; more are left to TCP, whoever sends them
# What waits is kept below what is served in this part of the longest wait, so that hardly any of it
# is ever refused, but may be so many bytes; and so many where sends may wait for any time.
_OF_LONGEST_WAIT = 0.25
_LEAST_TARGET = 2 * 1024 * 1024
_TARGET_WITHOUT_LIMIT = 8 * 1024 * 1024
_ONE_READ = 256 * 1024  # bytes that a connection brings at most before it can be paused
_RATE_WEIGHT = 0.1  # of the latest turn, in the bytes that are served a second
_STALE_COST = 8  # refusing takes so many times less than serving


class Reader(Protocol):
    """What the backlog needs of a connection."""

    waits: bool  # some of what came lies in the backlog

    def throttle(self, on: bool) -> None:
        """Read no more for now, or go on."""

    def read(self, data: bytes, stale: bool = False) -> None:
        """Serve what came; of what is `stale`, refuse the sends."""


class Backlog:
    """What a listener has read from its connections and not served yet.

    ``longest_wait`` gives the seconds after which a send in it is refused; 0 never does.
    ``channels`` are all connections: while it is ``full`` none of them is read from.
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
        self._bytes: dict[Reader, int] = {}  # that wait of each
        self._paused: set[Reader] = set()  # those with their share waiting, or waiting for a turn
        self._resting: dict[Reader, None] = {}  # of these: nothing of them waits any more
        self._greedy: WeakSet[Reader] = WeakSet()  # sent much at once, and are being read
        self._left = TURN_BYTES
        self._scheduled = False
        self._rate = 0.0  # bytes a second
        self._turned = 0.0  # when the last turn of a busy stretch ended; 0 before the first
        self.size = 0  # bytes that wait
        self.full = False

    def keeps(self, channel: "Reader", data: bytes) -> bool:
        """Whether what a connection has got is kept for later; else it is to be served now."""
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
        """Read no more from a connection until there is room again."""
        self._throttled[channel] = None
        channel.throttle(True)

    def rest(self, channel: "Reader") -> list[bytes]:
        """What waits of a connection that closes; it waits no more."""
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
        """Read again from those of whom nothing waits, the longest paused first."""
        room = self._target() - self.size
        while self._resting and room > 0 and not self.full:
            channel = next(iter(self._resting))
            del self._resting[channel]
            self._paused.discard(channel)
            self._greedy.add(channel)
            channel.throttle(False)
            room -= _ONE_READ

    def _target(self) -> int:
        """Bytes that may wait, of all connections."""
        limit = self._longest_wait()
        target = self._rate * limit * _OF_LONGEST_WAIT if limit else _TARGET_WITHOUT_LIMIT
        return int(min(max(target, _LEAST_TARGET), MOST_WAITING))

    def _measure(self, served: int) -> None:
        """Note how fast it goes, over turns that follow each other without a rest."""
        now = self._clock()
        if served > 0 and now > self._turned > 0.0:
            rate = served / (now - self._turned)
            self._rate += (rate - self._rate) * (_RATE_WEIGHT if self._rate else 1.0)
        self._turned = now if self._waiting else 0.0

    def _turn(self) -> None:
        """Serve what waits, a piece of each connection in turn, until enough is done."""
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
                self._left = 0  # what is read in this turn waits behind it
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
            self._waiting[channel] = pieces  # behind the others
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
