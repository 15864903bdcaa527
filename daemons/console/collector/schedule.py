"""What is due next: a broker's lists, and its topics and groups one by one.

Each look is due again so long after it was done. What cannot be done in time is done late, in the
order in which it was due, so that a cluster that is too large for the pace is looked at in turn.
"""

import heapq
from collections.abc import Hashable, Iterable
from itertools import count


class Schedule:
    """Looks by the time that they are due, in seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hashable]] = []
        self._due: dict[Hashable, float] = {}  # what is in force of the heap
        self._order = count()

    def __len__(self) -> int:
        return len(self._due)

    def put(self, look: Hashable, due: float) -> None:
        """Have something looked at then, instead of when it was due before."""
        self._due[look] = due
        heapq.heappush(self._heap, (due, next(self._order), look))

    def add(self, looks: Iterable[Hashable], due: float) -> None:
        """Have what is not in it yet looked at then."""
        for look in looks:
            if look not in self._due:
                self.put(look, due)

    def remove(self, look: Hashable) -> None:
        self._due.pop(look, None)

    def next(self) -> tuple[float, Hashable] | None:
        """What is due first, and when; it stays until it is put or removed. None for nothing."""
        while self._heap:
            due, _, look = self._heap[0]
            if self._due.get(look) == due:
                return due, look
            heapq.heappop(self._heap)
        return None
