"""The data of a chart, before it is drawn: lines of points, reduced to visible detail."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mq.daemons.console.history.points import Point

MAX_POINTS = 500
# A time without points is a gap if it is this many times as long as the usual interval.
_GAP = 3
_SMALLEST = 1e-9  # the smallest value for which an axis is divided
_SHORTEST_GAP = 90  # seconds: points of every minute may be late


@dataclass(frozen=True, slots=True)
class Line:
    """A series in a chart. Points that are too far apart have a gap between them."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over a time range, in s since 1970, in one unit: messages, messages/s, bytes…"""

    title: str
    unit: str
    begin: int
    end: int
    lines: tuple[Line, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(line.points for line in self.lines)


def thinned(points: Sequence[Point], begin: int, end: int, most: int = MAX_POINTS) -> list[Point]:
    """Return at most `most` points; merged points keep their lowest and highest values."""
    if len(points) <= most:
        return list(points)
    width = max(1, -(-(end - begin) // most))
    slots: dict[int, list[Point]] = {}
    for point in points:
        slots.setdefault(begin + (point.at - begin) // width * width, []).append(point)
    return [
        Point(
            at,
            min(one.low for one in some),
            max(one.high for one in some),
            sum(one.mean for one in some) / len(some),
        )
        for at, some in slots.items()
    ]


def drawable(points: Sequence[Point]) -> list[Point]:
    """Return the finite points: infinity and NaN are gaps."""
    return [point for point in points if all(map(math.isfinite, point))]


def pieces(points: Sequence[Point]) -> list[list[Point]]:
    """Split points at gaps."""
    if not points:
        return []
    steps = sorted(b.at - a.at for a, b in pairwise(points))
    usual = steps[len(steps) // 2] if steps else 0
    longest = max(_GAP * usual, _SHORTEST_GAP)
    found = [[points[0]]]
    for before, point in pairwise(points):
        if point.at - before.at > longest:
            found.append([])
        found[-1].append(point)
    return found


def rows(chart: Chart) -> list[tuple[int, tuple[float | None, ...]]]:
    """Return the numbers of a chart: a row for each time, a column for each line; None is a gap."""
    times = sorted({point.at for line in chart.lines for point in line.points})
    columns = [{point.at: point.mean for point in line.points} for line in chart.lines]
    return [(at, tuple(column.get(at) for column in columns)) for at in times]


def step(highest: float, most: int = 5) -> float:
    """Return a round distance of axis marks: 1, 2 or 5 times a power of ten."""
    if not _SMALLEST <= highest < math.inf:
        return 1.0
    power = 1.0
    while power * 10 <= highest / most:
        power *= 10
    while power > highest / most:
        power /= 10
    for times in (1, 2, 5, 10):
        if highest / (power * times) <= most:
            return power * times
    return power * 10


def shown(value: float, unit: str) -> str:
    """Return a short number for an axis: 1.5 k, 20 M, 64 KiB, 12 %."""
    if unit == "%":
        return f"{value:g}"
    thousand, letters = (1024, ("", "Ki", "Mi", "Gi", "Ti")) if unit.startswith("B") else (
        1000, ("", "k", "M", "G", "T"))  # fmt: skip
    for letter in letters:
        if abs(value) < thousand or letter == letters[-1]:
            break
        value /= thousand
    return f"{value:.3g}{' ' if letter else ''}{letter}"


def span_marks(begin: int, end: int, most: int = 8) -> Iterable[int]:
    """Return at most `most` round times within a range."""
    for seconds in (60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800):
        if (end - begin) / seconds <= most:
            break
    first = -(-begin // seconds) * seconds
    return range(first, end + 1, seconds)
