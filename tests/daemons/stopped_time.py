"""Clocks that a test stops: no time passes for a daemon, however slow the machine is.

Timers of the event loop still run in real time; after one, such a clock shows the same time as
before.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mq.client.machine import clock


class StoppedClock:
    """The clock of the daemons in this process; only the test advances it."""

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    @property
    def now(self) -> int:
        """The time in ms."""
        return self.nanoseconds // 1_000_000

    def seconds(self) -> float:
        return self.nanoseconds / 1e9

    def advance(self, milliseconds: int) -> None:
        self.nanoseconds += milliseconds * 1_000_000


@contextmanager
def stopped_time() -> Iterator[StoppedClock]:
    """Stop the time of day. Timeouts that depend on it (an invisible time, a delay) do not end
    meanwhile.

    Afterwards it is the real time again: whatever became due meanwhile is found at the next check.
    A test that advances it stops the daemons first, because time would go back for them.
    """
    stopped = StoppedClock(time.time_ns())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "time_ns", lambda: stopped.nanoseconds)
        patch.setattr(clock, "time", stopped.seconds)
        yield stopped


@contextmanager
def stopped_monotonic() -> Iterator[StoppedClock]:
    """Stop the monotonic clock: no lease or timeout ends until the test advances it."""
    stopped = StoppedClock(time.monotonic_ns())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "monotonic", stopped.seconds)
        yield stopped
