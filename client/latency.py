"""Fault tolerance: avoiding slow brokers (MQFaultStrategy, LatencyFaultToleranceImpl). No I/O."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from mq.client.errors import ClientError
from mq.client.machine import clock

_ISOLATION_SECONDS = 30.0  # a send that failed counts as one that took so long


@dataclass(frozen=True)
class FaultTolerance:
    """How long a broker is avoided after a send that took long; all in seconds.

    A send of at least `latency[i]` has its broker avoided for `avoided[i]`. Raises ClientError for
    tables of different lengths or a latency that does not rise.
    """

    latency: Sequence[float] = (0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0)
    avoided: Sequence[float] = (0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0)

    def __post_init__(self) -> None:
        if len(self.latency) != len(self.avoided):
            raise ClientError(
                f"{len(self.latency)} latencies need as many durations, not {len(self.avoided)}"
            )
        if list(self.latency) != sorted(set(self.latency)):
            raise ClientError("the latencies of fault tolerance must rise")

    def duration(self, seconds: float) -> float:
        """How long to avoid the broker of a send that took `seconds`."""
        index = bisect_right(self.latency, seconds) - 1
        return self.avoided[index] if index >= 0 else 0.0


@dataclass(slots=True)
class _Fault:
    name: str
    latency: float
    until: float


class BrokerFaults:
    """What a producer has seen of each broker."""

    def __init__(
        self, tolerance: FaultTolerance, clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self._tolerance = tolerance
        self._clock = clock
        self._faults: dict[str, _Fault] = {}
        self._turns = count(1)

    def record(self, broker_name: str, seconds: float, *, isolate: bool = False) -> None:
        """A send to a broker took `seconds`; `isolate` it when the send failed."""
        duration = self._tolerance.duration(_ISOLATION_SECONDS if isolate else seconds)
        until = self._clock() + duration
        self._faults[broker_name] = _Fault(broker_name, seconds, until)

    def is_available(self, broker_name: str) -> bool:
        """Whether nothing speaks against sending to a broker."""
        fault = self._faults.get(broker_name)
        return fault is None or self._clock() >= fault.until

    def least_bad(self, names: Iterable[str]) -> str | None:
        """When all of these are bad: one of the better half, each in turn; None if nothing is known
        of them."""
        now = self._clock()
        ranked = sorted(
            [fault for name in names if (fault := self._faults.get(name)) is not None],
            key=lambda f: (now < f.until, f.latency, f.until),
        )
        if not ranked:
            return None
        return ranked[next(self._turns) % max(1, len(ranked) // 2)].name
