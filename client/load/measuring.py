"""Measurements: the counts of a worker, and the time in which they count."""

import time

from mq.client.load.plan import LoadResult, Plan

clock = time.monotonic_ns
_MICROSECOND = 1000


class LoadCounter:
    """The counts of a worker. Requests that end during the warm-up are not counted.

    Attributes:
        begin: the start of counting, in nanoseconds of the monotonic clock; `end` is its end.
        total: all messages so far, including those not counted.
    """

    def __init__(self, plan: Plan, begin: int) -> None:
        self.begin = begin + int(plan.warm * 1e9)
        self.end = self.begin + int(plan.seconds * 1e9)
        self.result = LoadResult()
        self.total = 0
        self._last = self.begin
        self._cut = False
        self._latencies = self.result.latencies

    def ended(self, due: int, messages: int, size: int) -> int:
        """Record the reply to a request that was due at `due`; returns the current time."""
        now = clock()
        self.total += messages
        if self.begin <= now <= self.end:
            self.record(now - due, messages, size)
            self._last = now
        return now

    def record(self, nanoseconds: int, messages: int, size: int) -> None:
        result = self.result
        result.messages += messages
        result.size += size
        latency = nanoseconds // _MICROSECOND
        latencies = self._latencies
        latencies[latency] = latencies.get(latency, 0) + 1

    def failed(self, code: int, remark: str) -> None:
        """Record a refused request, or (code -1) a lost connection."""
        if self._cut:
            return
        errors = self.result.errors
        errors[code] = errors.get(code, 0) + 1
        self.result.remark = self.result.remark or remark

    def cut(self) -> None:
        """Stop counting: requests in flight are abandoned."""
        self._cut = True
        self.end = min(self.end, clock())

    def finish(self) -> LoadResult:
        """Return the results, with the time that they cover."""
        self.result.seconds = max(self._last - self.begin, 1) / 1e9
        return self.result
