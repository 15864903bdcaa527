"""Clocks that a test stops: for a daemon no time passes, however long a busy machine takes.

What waits by a timer of the loop waits really; when it looks at such a clock, it is as early as
before.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mq.client.machine import clock


class StoppedClock:
    """What a daemon of this process sees; it moves only when a test says so."""

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    @property
    def now(self) -> int:
        """In ms."""
        return self.nanoseconds // 1_000_000

    def seconds(self) -> float:
        return self.nanoseconds / 1e9

    def advance(self, milliseconds: int) -> None:
        self.nanoseconds += milliseconds * 1_000_000


@contextmanager
def stopped_time() -> Iterator[StoppedClock]:
    """Stop the time of day. What becomes due by it (an invisible time, a delay) is not due
    meanwhile.

    Afterwards it is what it really is: what became due in between is found at the next look. Who
    moves it on ends the daemons first, for which it would go back.
    """
    stopped = StoppedClock(time.time_ns())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "time_ns", lambda: stopped.nanoseconds)
        patch.setattr(clock, "time", stopped.seconds)
        yield stopped


@contextmanager
def stopped_monotonic() -> Iterator[StoppedClock]:
    """Stop the clock that says how long something took: no lease ends, nobody was silent for long,
    until the test moves it on."""
    stopped = StoppedClock(time.monotonic_ns())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "monotonic", stopped.seconds)
        yield stopped
