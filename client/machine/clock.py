"""Clocks: the time of day, which may jump, and a monotonic clock for durations.

Use `datetime.fromtimestamp(clock.time())` for calendar dates.
"""

import time as _time

time = _time.time
time_ns = _time.time_ns
monotonic = _time.monotonic
monotonic_ns = _time.monotonic_ns
perf_counter = _time.perf_counter
thread_time = _time.thread_time  # CPU seconds of this thread


def milliseconds() -> int:
    """Return the time of day in ms since 1970, the unit of the wire format and the store."""
    return time_ns() // 1_000_000
