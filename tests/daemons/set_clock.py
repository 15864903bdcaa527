"""A time of day that a test sets, like an administrator or NTP; it continues at normal speed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mq.client.machine import clock

DAY = 24 * 3600 * 1000


class SetClock:
    """The clock is `ahead` by so many ms."""

    def __init__(self) -> None:
        self.ahead = 0

    def nanoseconds(self) -> int:
        return time.time_ns() + self.ahead * 1_000_000

    def seconds(self) -> float:
        return self.nanoseconds() / 1e9

    @property
    def now(self) -> int:
        """The time in ms."""
        return self.nanoseconds() // 1_000_000


@contextmanager
def set_clock() -> Iterator[SetClock]:
    """Give the daemons of this process a clock that can be set; it is correct again at the end."""
    one = SetClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "time_ns", one.nanoseconds)
        patch.setattr(clock, "time", one.seconds)
        yield one
