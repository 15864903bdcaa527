"""Ages in at most two units."""

from itertools import pairwise

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def age(millis: int | None, now: int) -> str | None:
    """Return `3d 4h`, `2m 5s`, `0s`; None if unknown. Times are in ms."""
    if millis is None:
        return None
    left = max(0, now - millis) // 1000
    for (size, unit), (smaller, its) in pairwise(_UNITS):
        if left >= size:
            first, rest = divmod(left, size)
            second = rest // smaller
            return f"{first}{unit} {second}{its}" if second else f"{first}{unit}"
    return f"{left}s"


def seconds(millis: int | None, now: int) -> float | None:
    """Return the same in seconds, for programs."""
    return None if millis is None else max(0, now - millis) / 1000
