"""A schedule of polls: a broker's topics and groups one by one.

Each poll is due again some time after it was done. Late polls are done in the order of their due
times, so that a cluster that is too large for the rate is polled in turn.
"""

import heapq
from collections.abc import Hashable, Iterable
from itertools import count


class Schedule:
    """Polls by due time, in seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hashable]] = []
        self._due: dict[Hashable, float] = {}  # the valid entries of the heap
        self._order = count()

    def __len__(self) -> int:
        return len(self._due)

    def put(self, poll: Hashable, due: float) -> None:
        """Set the due time of a poll, replacing an earlier one."""
        self._due[poll] = due
        heapq.heappush(self._heap, (due, next(self._order), poll))

    def add(self, polls: Iterable[Hashable], due: float) -> None:
        """Set the due time of polls that are not scheduled yet."""
        for poll in polls:
            if poll not in self._due:
                self.put(poll, due)

    def remove(self, poll: Hashable) -> None:
        self._due.pop(poll, None)

    def next(self) -> tuple[float, Hashable] | None:
        """Return the first poll and its due time; it stays scheduled. None if there is none."""
        while self._heap:
            due, _, poll = self._heap[0]
            if self._due.get(poll) == due:
                return due, poll
            heapq.heappop(self._heap)
        return None
