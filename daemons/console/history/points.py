"""Points of a series: in memory, as bytes in the file, and in sums of five minutes."""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

HOUR = 3600  # seconds
COARSE = 300
_MOST_UNPACKED = 1 << 20  # limit for the bytes of one hour of a series; normal is a thousandth


class Key(NamedTuple):
    """The key of a series: `kind` is cluster, broker, topic or group; `subject` is its name."""

    cluster: str
    kind: str
    subject: str
    metric: str


class Point(NamedTuple):
    """Values at a time (s since 1970): for a single moment all three are equal."""

    at: int
    low: float
    high: float
    mean: float


class Damaged(Exception):
    """The file's content cannot be read."""


class Points:
    """Times and values, sorted by time."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times = array("I")
        self.values = array("d")

    def __len__(self) -> int:
        return len(self.times)

    def add(self, at: int, value: float) -> None:
        """Append a point. Points that are not earlier are removed: the clock was set back."""
        if self.times and self.times[-1] >= at:
            self.cut(bisect_left(self.times, at), len(self.times))
        self.times.append(at)
        self.values.append(value)

    def cut(self, begin: int, end: int) -> None:
        """Remove points by position."""
        del self.times[begin:end]
        del self.values[begin:end]

    def between(self, begin: int, end: int) -> "Points":
        """Return the points from `begin` to before `end`, in seconds."""
        found = Points()
        first, last = bisect_left(self.times, begin), bisect_left(self.times, end)
        found.times = self.times[first:last]
        found.values = self.values[first:last]
        return found

    def packed(self) -> bytes:
        """Return the points as bytes for the file."""
        return zlib.compress(self.times.tobytes() + self.values.tobytes(), 1)

    @classmethod
    def unpacked(cls, data: bytes) -> "Points":
        """Return the points of bytes. Raises Damaged."""
        raw = _unzipped(data)
        count, rest = divmod(len(raw), 12)
        if rest:
            raise Damaged(f"{len(raw)} bytes of points")
        found = cls()
        found.times.frombytes(raw[: 4 * count])
        found.values.frombytes(raw[4 * count :])
        return found

    def all(self) -> list[Point]:
        return [Point(t, v, v, v) for t, v in zip(self.times, self.values, strict=True)]


def coarse(points: Points) -> list[Point]:
    """Return one point for each five minutes with points, at their start."""
    return merged(points.all(), COARSE)


def merged(points: Iterable[Point], seconds: int) -> list[Point]:
    """Return one point for each span of `seconds` with points, at its start."""
    found: dict[int, list[Point]] = {}
    for point in points:
        found.setdefault(point.at - point.at % seconds, []).append(point)
    return [
        Point(
            at,
            min(one.low for one in some),
            max(one.high for one in some),
            sum(one.mean for one in some) / len(some),
        )
        for at, some in found.items()
    ]


def pack_coarse(points: Iterable[Point]) -> bytes:
    """Return sums of five minutes as bytes for the file."""
    some = list(points)
    times = array("I", (one.at for one in some))
    values = array("d", (value for one in some for value in one[1:]))
    return zlib.compress(times.tobytes() + values.tobytes(), 1)


def unpack_coarse(data: bytes) -> list[Point]:
    """Return the sums of bytes. Raises Damaged."""
    raw = _unzipped(data)
    count, rest = divmod(len(raw), 28)
    if rest:
        raise Damaged(f"{len(raw)} bytes of sums")
    times, values = array("I"), array("d")
    times.frombytes(raw[: 4 * count])
    values.frombytes(raw[4 * count :])
    return [Point(at, *values[3 * i : 3 * i + 3]) for i, at in enumerate(times)]


def _unzipped(data: bytes) -> bytes:
    unzip = zlib.decompressobj()
    try:
        raw = unzip.decompress(data, _MOST_UNPACKED)
    except zlib.error as error:
        raise Damaged(str(error)) from None
    if not unzip.eof:
        raise Damaged("truncated points")
    return raw
