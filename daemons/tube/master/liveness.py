"""Who is alive: nodes that have to be heard of again and again (HeartbeatManager)."""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)


class Unknown(Exception):
    """Nothing is known of this node, or not any more: it has to register again."""


class Liveness(Generic[N]):
    """Nodes, and until when each is taken for alive. Times are seconds of a monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[N, float] = {}  # those that were heard of last are last

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, node: object) -> bool:
        return node in self._until

    def __iter__(self) -> Iterator[N]:
        return iter(list(self._until))

    def begin(self, node: N, now: float) -> None:
        """A node has registered, perhaps again."""
        self._until.pop(node, None)
        self._until[node] = now + self._seconds

    def renew(self, node: N, now: float) -> None:
        """It was heard of. Raises Unknown, also where it is only about to be looked for."""
        if self._until.get(node, 0.0) <= now:
            raise Unknown(f"Invalid node id:{node}, you have to append node first!")
        self.begin(node, now)

    def end(self, node: N) -> bool:
        """It has said good bye; whether it was known."""
        return self._until.pop(node, None) is not None

    def clear(self) -> None:
        self._until.clear()

    def expired(self, now: float) -> list[N]:
        """Take out and return those that were not heard of in time."""
        gone = []
        for node, until in self._until.items():
            if until > now:
                break
            gone.append(node)
        for node in gone:
            del self._until[node]
        return gone
