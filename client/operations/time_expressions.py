"""Points in time and durations as text: in commands, in jobs, in the console.

A point in time is one of: `now`; an age, such as `15m`, `1h30m` or `2d`, before now (`-15m` and
`15m ago` mean the same); ISO 8601, with a zone or in the user's; the local
`yyyy-MM-dd#HH:mm:ss:SSS` of mqadmin (UtilAll.parseDate); milliseconds since 1970.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

_PART = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)")
_LONG = 2**63
_UNITS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}


def parse(text: str, now: float, zone: "tzinfo | None" = None) -> int:
    """Return milliseconds since 1970. `now` is in seconds; `zone` is the user's, by default the
    machine's.

    Raises ValueError for a text that is not a point in time, or that exceeds 64 bits.
    """
    found = _parsed(text.strip(), now, zone)
    if not -_LONG <= found < _LONG:
        raise ValueError(f"{text.strip()!r} is not a time")
    return found


def _parsed(text: str, now: float, zone: "tzinfo | None") -> int:
    if text == "now":
        return int(now * 1000)
    age = text.removesuffix("ago").rstrip().removeprefix("-")
    if _PART.match(age):
        try:
            return int(now * 1000) - duration(age)
        except ValueError:
            pass
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return _of_calendar(text, zone)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time") from None


def duration(text: str) -> int:
    """Return the milliseconds in `500ms`, `2s`, `15m`, `1h30m`, `2d`. Raises ValueError."""
    text = text.strip()
    total = end = 0
    for part in _PART.finditer(text):
        if part.start() != end:
            break
        total += int(part[1]) * _UNITS[part[2]]
        end = part.end()
    if not text or end != len(text):
        raise ValueError(f"{text!r} is not a duration such as 500ms, 2s or 15m")
    return total


def seconds(text: str) -> float:
    """Return seconds, from a number of seconds or a duration. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        return duration(text) / 1000


def milliseconds(text: str) -> int:
    """Return milliseconds, from a number of milliseconds or a duration. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        return duration(text)


def _of_calendar(text: str, zone: "tzinfo | None") -> int:
    from datetime import UTC, datetime, timedelta  # imported here: each command loads this module

    found = _of_mqadmin(text) if "#" in text else datetime.fromisoformat(text)
    if found.tzinfo is None:
        found = found.astimezone() if zone is None else found.replace(tzinfo=zone)
    return (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _of_mqadmin(text: str) -> "datetime":
    from datetime import datetime, timedelta

    day, _, clock = text.partition("#")
    whole, _, fraction = clock.rpartition(":")
    when = datetime.strptime(f"{day}#{whole}", "%Y-%m-%d#%H:%M:%S")
    return when + timedelta(milliseconds=int(fraction))
