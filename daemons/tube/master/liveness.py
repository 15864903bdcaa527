"""The liveness of nodes that send heartbeats (HeartbeatManager)."""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)


class Unknown(Exception):
    """This node is unknown, or expired: it must register again."""


class Liveness(Generic[N]):
    """Nodes and their times of expiry. Times are seconds of a monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[N, float] = {}  # those with the latest heartbeats are last

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, node: object) -> bool:
        return node in self._until

    def __iter__(self) -> Iterator[N]:
        return iter(list(self._until))

    def begin(self, node: N, now: float) -> None:
        """Register a node, possibly again."""
        self._until.pop(node, None)
        self._until[node] = now + self._seconds

    def renew(self, node: N, now: float) -> None:
        """Process its heartbeat. Raises Unknown, also if it has expired but was not removed yet."""
        if self._until.get(node, 0.0) <= now:
            raise Unknown(f"Invalid node id:{node}, you have to append node first!")
        self.begin(node, now)

    def end(self, node: N) -> bool:
        """Unregister it; return whether it was known."""
        return self._until.pop(node, None) is not None

    def clear(self) -> None:
        self._until.clear()

    def expired(self, now: float) -> list[N]:
        """Remove and return those without a timely heartbeat."""
        gone = []
        for node, until in self._until.items():
            if until > now:
                break
            gone.append(node)
        for node in gone:
            del self._until[node]
        return gone
