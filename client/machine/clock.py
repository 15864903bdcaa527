"""Clocks: the time of day, which may jump, and a monotonic one, which says how long something took.

`datetime.fromtimestamp(clock.time())` is the way to a calendar.
"""

import time as _time

time = _time.time
time_ns = _time.time_ns
monotonic = _time.monotonic
monotonic_ns = _time.monotonic_ns
perf_counter = _time.perf_counter
thread_time = _time.thread_time  # seconds that the processor has worked for this thread


def milliseconds() -> int:
    """The time of day in ms since 1970, as the wire and the store have it."""
    return time_ns() // 1_000_000
