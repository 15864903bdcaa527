"""Fault tolerance: avoids slow and failing brokers (MQFaultStrategy, LatencyFaultToleranceImpl).

No I/O.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mq.client.errors import ClientError
from mq.client.machine import clock

_ISOLATION_SECONDS = 10.0  # a failed send counts as one that took this long
# One send at a time probes a broker that failed; the next probe follows after this many seconds.
_TEST_SECONDS = 1.0


@dataclass(frozen=True)
class FaultTolerance:
    """How long a broker is avoided after a slow send. All values are in seconds.

    A send that takes at least `latency[i]` makes producers avoid its broker for `avoided[i]`; a
    failed send counts as one of 10 seconds. The defaults are those of Java's client 5.x; 4.9 avoids
    a broker for up to ten minutes. Raises ClientError if the tables differ in length or the
    latencies do not increase.
    """

    latency: Sequence[float] = (0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0)
    avoided: Sequence[float] = (0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0)

    def __post_init__(self) -> None:
        if len(self.latency) != len(self.avoided):
            raise ClientError(
                f"{len(self.latency)} latencies need as many durations, not {len(self.avoided)}"
            )
        if list(self.latency) != sorted(set(self.latency)):
            raise ClientError("the latencies of fault tolerance must rise")

    def duration(self, seconds: float) -> float:
        """Return how long to avoid the broker of a send that took `seconds`."""
        index = bisect_right(self.latency, seconds) - 1
        return self.avoided[index] if index >= 0 else 0.0


@dataclass(slots=True)
class _Fault:
    until: float
    failed: bool  # whether the last send failed; otherwise it was slow


class BrokerFaults:
    """The brokers that a producer avoids, by name. False if there are none."""

    def __init__(
        self, tolerance: FaultTolerance, clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self._tolerance = tolerance
        self._clock = clock
        self._faults: dict[str, _Fault] = {}

    def __bool__(self) -> bool:
        return bool(self._faults)

    def __contains__(self, broker_name: str) -> bool:
        return broker_name in self._faults

    def record(self, broker_name: str, seconds: float) -> None:
        """Record that a send to a broker took `seconds`."""
        duration = self._tolerance.duration(seconds)
        if duration > 0:
            self._faults[broker_name] = _Fault(self._clock() + duration, failed=False)
        else:
            self._faults.pop(broker_name, None)

    def isolate(self, broker_name: str) -> None:
        """Record that a send to a broker failed or was not answered in time."""
        duration = self._tolerance.duration(_ISOLATION_SECONDS)
        self._faults[broker_name] = _Fault(self._clock() + duration, failed=True)

    def best(self, broker_names: Iterable[str]) -> set[str]:
        """Return the brokers that are not avoided; if none, those that answer; if none, all."""
        names = set(broker_names)
        now = self._clock()
        bad = {name: fault for name in names if (fault := self._faults.get(name)) is not None}
        available = {name for name in names if name not in bad or bad[name].until <= now}
        return available or {name for name in names if not bad[name].failed} or names

    def chosen(self, broker_name: str) -> None:
        """Record that a send goes to a broker: if the broker has failed, others avoid it until the
        send ends.
        """
        fault = self._faults.get(broker_name)
        if fault is not None and fault.failed:
            fault.until = max(fault.until, self._clock() + _TEST_SECONDS)
