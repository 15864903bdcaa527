"""What a chart shows, before it is drawn: lines of points, thinned to what can be seen."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mq.daemons.console.history.points import Point

MOST_POINTS = 500
#: A time without points is a gap when it is this many times as long as the usual one.
_GAP = 3
_SMALLEST = 1e-9  # of what an axis is divided for
_SHORTEST_GAP = 90  # seconds: what is asked for every minute may come a little late


@dataclass(frozen=True, slots=True)
class Line:
    """A series in a chart. Points without one between them for too long have a gap between."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over a span of time, in s since 1970, all of one unit: messages, messages/s, bytes…"""

    title: str
    unit: str
    begin: int
    end: int
    lines: tuple[Line, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(line.points for line in self.lines)


def thinned(points: Sequence[Point], begin: int, end: int, most: int = MOST_POINTS) -> list[Point]:
    """At most so many points; of a slot that several share the lowest and the highest are kept."""
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
    """Those that have a place in a picture: a number without end, or none at all, is a gap."""
    return [point for point in points if all(map(math.isfinite, point))]


def pieces(points: Sequence[Point]) -> list[list[Point]]:
    """Points that belong together: between two pieces nothing is known."""
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
    """The numbers behind a chart: a row for each time, a column for each line; None is a gap."""
    times = sorted({point.at for line in chart.lines for point in line.points})
    columns = [{point.at: point.mean for point in line.points} for line in chart.lines]
    return [(at, tuple(column.get(at) for column in columns)) for at in times]


def step(highest: float, most: int = 5) -> float:
    """A round distance between marks of an axis: 1, 2 or 5 times a power of ten."""
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
    """A number of an axis, short: 1.5 k, 20 M, 64 KiB, 12 %."""
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
    """Round times within a span, at most so many."""
    for seconds in (60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800):
        if (end - begin) / seconds <= most:
            break
    first = -(-begin // seconds) * seconds
    return range(first, end + 1, seconds)
