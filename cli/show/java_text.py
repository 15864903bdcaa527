"""Java's formats, for plain output."""

import time
from collections.abc import Iterable, Mapping
from typing import Any


def cut(text: str | None, size: int) -> str:
    """Return UtilAll.frontStringAtLeast; null becomes text, as with %s."""
    return "null" if text is None else text[:size]


def truth(value: bool) -> str:
    """Return a boolean as Java writes it."""
    return "true" if value else "false"


def fixed(value: float, digits: int) -> str:
    """Return Java's %.2f: halves of the shortest decimal form are rounded up, not to even."""
    from decimal import ROUND_HALF_UP, Decimal

    if value != value:
        return "NaN"
    step = Decimal(1).scaleb(-digits)
    return str(Decimal(repr(float(value))).quantize(step, rounding=ROUND_HALF_UP))


def map_text(entries: Mapping[Any, Any], order: Iterable[Any]) -> str:
    """Return AbstractMap.toString: `{key=value, key=value}`."""
    return "{" + ", ".join(f"{key}={entries[key]}" for key in order) + "}"


def seconds_text(milliseconds: int) -> str:
    """Return a local time as UtilAll.YYYY_MM_DD_HH_MM_SS: `2026-07-01 12:00:00`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds // 1000))


def milliseconds_text(milliseconds: int) -> str:
    """Return UtilAll.timeMillisToHumanString2: `2026-07-01 12:00:00,123`."""
    return f"{seconds_text(milliseconds)},{milliseconds % 1000:03}"


def digits_text(milliseconds: int) -> str:
    """Return UtilAll.timeMillisToHumanString: `20260701120000123`."""
    when = time.localtime(milliseconds // 1000)
    return f"{time.strftime('%Y%m%d%H%M%S', when)}{milliseconds % 1000:03}"
