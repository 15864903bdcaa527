"""Stats of brokers, as they tell them of themselves (GET_BROKER_RUNTIME_INFO), read as numbers.

A number that a broker does not have, or writes in a way that is no number, is None; so is one that
no counter of 64 bits can have: nobody could add it up or draw it.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

Table = Mapping[str, str]

_BUCKET = re.compile(r"\[([^\]]*)\]:(\d+)|(\S+):(\d+)")
_MORNINGS = ("YesterdayMorning", "TodayMorning", "TodayNow")


#: No counter of a broker is beyond this, in Java or here.
LARGEST = 2**63


class Totals(NamedTuple):
    """Messages of two days."""

    in_yesterday: int
    out_yesterday: int
    in_today: int
    out_today: int


def fits_counter(value: float) -> bool:
    """Whether it is finite, and no larger than a counter can be."""
    return abs(value) <= LARGEST  # false of NaN, too


def integer(table: Table, key: str) -> int | None:
    """A whole number."""
    try:
        found = int(table[key])
    except (KeyError, ValueError):
        return None
    return found if abs(found) <= LARGEST else None


def number(table: Table, key: str) -> float | None:
    """A number; Java says NaN of what it has not measured, which is none."""
    text = table.get(key, "")
    try:
        found = int(text) if text.isdecimal() else float(text)
    except ValueError:
        return None
    return found if fits_counter(found) else None


def in_rate(table: Table) -> float | None:
    """Messages that came in, a second, over the last ten seconds."""
    return _first(table, "putTps")


def out_rate(table: Table) -> float | None:
    """Messages that went out, a second, over the last ten seconds; 5.0 spelled the key right."""
    right = "getTransferredTps"
    return _first(table, right if right in table else "getTransferedTps")


def first_number(table: Table, key: str) -> float:
    """The first of three rates: of the last ten seconds; 0 where there is none, as in mqadmin."""
    try:
        return float(table[key].split(" ")[0])
    except (KeyError, ValueError):
        return 0.0


def earliest_at(table: Table) -> int | None:
    """The store time in ms of the oldest message; None where there is no message."""
    earliest = integer(table, "earliestMessageTimeStamp")
    return earliest if earliest is not None and earliest > 0 else None


def totals(table: Table) -> Totals | None:
    """In and out of yesterday, in and out of today."""
    try:
        put = [int(table[f"msgPutTotal{when}"]) for when in _MORNINGS]
        got = [int(table[f"msgGetTotal{when}"]) for when in _MORNINGS]
    except (KeyError, ValueError):
        return None
    if not all(map(fits_counter, (*put, *got))):
        return None
    return Totals(put[1] - put[0], got[1] - got[0], put[2] - put[1], got[2] - got[1])


def disk_used(table: Table) -> float | None:
    """How full the fullest disk is, 0 to 1."""
    found = [number(table, f"{part}DiskRatio") for part in ("commitLog", "consumeQueue")]
    known = [ratio for ratio in found if ratio is not None and ratio >= 0]
    return round(max(known), 4) if known else None


def put_distribution(table: Table) -> dict[str, int] | None:
    """How many puts of the last minute took how long: `[<=0ms]:12 [0~10ms]:3 …`."""
    found = {
        (one[1] or one[3]): int(one[2] or one[4])
        for one in _BUCKET.finditer(table.get("putMessageDistributeTime", ""))
    }
    return found or None


def growth(key: str, new: Table, old: Table, seconds: float) -> float | None:
    """What a counter has grown by in a second; None where it cannot be known.

    A counter that has become less is of a broker that was started again.
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
