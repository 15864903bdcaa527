"""Reduces a failing scenario: fewer faults, fewer clients, a shorter time.

Faults are reduced by delta debugging (Zeller and Hildebrandt, 2002: ddmin): halves, quarters and so
on are left out as long as the rest fails. Leaving out a fault changes later events, so a smaller
plan may need other delays to fail: each is tried with some noise, too. A failure counts if a
problem equals one of the first ones, apart from numbers.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from tests.simulation import scenario
from tests.simulation.scenario import Result, Variant
from tests.simulation.world import START

# Noises tried with a smaller scenario.
_NOISES = 4
# Seconds for which clients continue after the last fault.
_AFTERWARDS = (2.0, 5.0, 15.0)

# Parts of problems that differ between runs: numbers, and names of daemons and clients.
_NUMBERS = re.compile(r"[0-9][0-9.:]*|(?<=broker-)[a-z]\b")

Run = Callable[[int, Variant], Result]


class OutOfTime(Exception):
    """The time is over: use the best result so far."""


def shrink(failed: Result, seconds: float, run: Run = scenario.run) -> Result:
    """The smallest failing scenario found in so many seconds of real time."""
    search = _Search(failed, time.monotonic() + seconds, run)
    try:
        search.fewer_faults()
        search.fewer_clients()
        search.shorter()
        search.fewer_faults()
    except OutOfTime:
        pass
    return search.best


class _Search:
    def __init__(self, failed: Result, until: float, run: Run) -> None:
        self.best = failed
        self._until = until
        self._run = run
        self._tried: set[Variant] = set()
        self._wanted = {_without_numbers(problem) for problem in failed.problems}

    def _fails(self, variant: Variant) -> bool:
        """Whether a variant fails with some noise; it is the best so far then."""
        for noise in range(self.best.variant.noise, self.best.variant.noise + _NOISES):
            candidate = replace(variant, noise=noise)
            if candidate in self._tried:
                continue
            if time.monotonic() > self._until:
                raise OutOfTime
            self._tried.add(candidate)
            result = self._run(self.best.seed, candidate)
            if any(_without_numbers(problem) in self._wanted for problem in result.problems):
                self.best = result
                return True
        return False

    def fewer_faults(self) -> None:
        left = [fault.number for fault in self.best.plan]
        parts = 2
        if self._fails(replace(self.best.variant, faults=frozenset())):
            return
        while len(left) > 1:
            for part in _parts(left, parts):
                rest = [number for number in left if number not in part]
                if self._fails(replace(self.best.variant, faults=frozenset(rest))):
                    left, parts = rest, max(parts - 1, 2)
                    break
            else:
                if parts >= len(left):
                    return
                parts = min(len(left), 2 * parts)

    def fewer_clients(self) -> None:
        for name in list(self.best.clients):
            rest = [one for one in self.best.clients if one != name]
            self._fails(replace(self.best.variant, clients=frozenset(rest)))

    def shorter(self) -> None:
        last = max((fault.at + fault.seconds for fault in self.best.plan), default=START)
        for afterwards in _AFTERWARDS:
            seconds = round(last - START + afterwards, 1)
            if seconds < self.best.variant.work_seconds and self._fails(
                replace(self.best.variant, work_seconds=seconds)
            ):
                return


def _without_numbers(problem: str) -> str:
    return _NUMBERS.sub("#", problem)


def _parts(numbers: Sequence[int], count: int) -> list[Sequence[int]]:
    """Split into so many parts of about equal length."""
    edges = [len(numbers) * each // count for each in range(count + 1)]
    return [numbers[a:b] for a, b in pairwise(edges) if a < b]
