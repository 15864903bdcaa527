"""Parses the statistics that brokers report about themselves (GET_BROKER_RUNTIME_INFO).

A number that a broker does not report, or reports in an invalid format, is None. So is one that
exceeds a 64-bit counter, because it could not be summed or drawn.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

Table = Mapping[str, str]

_BUCKET = re.compile(r"\[([^\]]*)\]:(\d+)|(\S+):(\d+)")
_MORNINGS = ("YesterdayMorning", "TodayMorning", "TodayNow")


#: No counter of a broker exceeds this, in Java or here.
LARGEST = 2**63


class Totals(NamedTuple):
    """Message counts of two days."""

    in_yesterday: int
    out_yesterday: int
    in_today: int
    out_today: int


def fits_counter(value: float) -> bool:
    """Whether a number is finite, and not larger than a counter can be."""
    return abs(value) <= LARGEST  # false for NaN, too


def integer(table: Table, key: str) -> int | None:
    """Return an integer."""
    try:
        found = int(table[key])
    except (KeyError, ValueError):
        return None
    return found if abs(found) <= LARGEST else None


def number(table: Table, key: str) -> float | None:
    """Return a number; Java writes NaN for values that were not measured."""
    text = table.get(key, "")
    try:
        found = int(text) if text.isdecimal() else float(text)
    except ValueError:
        return None
    return found if fits_counter(found) else None


def in_rate(table: Table) -> float | None:
    """Return incoming messages per second over the last ten seconds."""
    return _first(table, "putTps")


def out_rate(table: Table) -> float | None:
    """Return outgoing messages per second over the last ten seconds; releases before 5.0 misspell
    the key.
    """
    right = "getTransferredTps"
    return _first(table, right if right in table else "getTransferedTps")


def first_number(table: Table, key: str) -> float:
    """Return the first of three rates, that of the last ten seconds; 0 if it is missing, as in
    mqadmin.
    """
    try:
        return float(table[key].split(" ")[0])
    except (KeyError, ValueError):
        return 0.0


def earliest_at(table: Table) -> int | None:
    """Return the store time in ms of the oldest message; None if there are no messages."""
    earliest = integer(table, "earliestMessageTimeStamp")
    return earliest if earliest is not None and earliest > 0 else None


def totals(table: Table) -> Totals | None:
    """Return the messages in and out of yesterday and of today."""
    try:
        put = [int(table[f"msgPutTotal{when}"]) for when in _MORNINGS]
        got = [int(table[f"msgGetTotal{when}"]) for when in _MORNINGS]
    except (KeyError, ValueError):
        return None
    if not all(map(fits_counter, (*put, *got))):
        return None
    return Totals(put[1] - put[0], got[1] - got[0], put[2] - put[1], got[2] - got[1])


def disk_used(table: Table) -> float | None:
    """Return the usage of the fullest disk, 0 to 1."""
    found = [number(table, f"{part}DiskRatio") for part in ("commitLog", "consumeQueue")]
    known = [ratio for ratio in found if ratio is not None and ratio >= 0]
    return round(max(known), 4) if known else None


def put_distribution(table: Table) -> dict[str, int] | None:
    """Return how many puts of the last minute had which latency: `[<=0ms]:12 [0~10ms]:3 …`."""
    found = {
        (one[1] or one[3]): int(one[2] or one[4])
        for one in _BUCKET.finditer(table.get("putMessageDistributeTime", ""))
    }
    return found or None


def growth(key: str, new: Table, old: Table, seconds: float) -> float | None:
    """Return the growth of a counter per second; None if it cannot be determined.

    A counter that has decreased means that the broker was restarted.
    """
    now, before = number(new, key), number(old, key)
    if now is None or before is None or now < before or seconds <= 0:
        return None
    return round((now - before) / seconds, 1)


def _first(table: Table, key: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    try:
        found = float(value.split(" ")[0])
    except ValueError:
        return None
    return round(found, 2) if fits_counter(found) else None
