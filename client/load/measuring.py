"""Measurements: when what comes counts, and what has been counted."""

import time

from mq.client.load.plan import LoadResult, Plan

clock = time.monotonic_ns
_MICROSECOND = 1000


class LoadCounter:
    """The counts of a worker. What ends before the warm time has passed is not counted.

    Attributes:
        begin: when counting begins, in nanoseconds of the monotonic clock; `end` when it ends.
        total: messages so far, the uncounted too.
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
        """A request that was due then has its reply now; returns the time."""
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
        """A request was refused, or (code -1) its connection is lost."""
        if self._cut:
            return
        errors = self.result.errors
        errors[code] = errors.get(code, 0) + 1
        self.result.remark = self.result.remark or remark

    def cut(self) -> None:
        """Count no more: what is on its way is given up."""
        self._cut = True
        self.end = min(self.end, clock())

    def finish(self) -> LoadResult:
        """What was measured, over the time in which it was."""
        self.result.seconds = max(self._last - self.begin, 1) / 1e9
        return self.result
