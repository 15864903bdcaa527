"""Points in time as people write them in options."""

import re

from mq.cli.runtime.errors import UsageError
from mq.cli.show import java_text

FORMS = "ms since 1970, 2026-07-01T12:00[:00][Z], yyyy-MM-dd#HH:mm:ss:SSS, or 15m ago: 15m"

_AGO = re.compile(r"(\d{1,9})(ms|s|m|h|d)").fullmatch
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse(text: str, flag: str, now: float) -> int:
    """Milliseconds since 1970. `now` in seconds is what `15m` counts back from.

    A time without a zone is local. Raises UsageError that names `flag`.
    """
    ago = _AGO(text)
    if ago is not None:
        return int(now * 1000) - int(ago[1]) * _UNITS[ago[2]]
    try:
        return java_text.parse_time(text)
    except ValueError:
        pass
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"{flag}: {text!r} is not a time", hint=f"write {FORMS}") from None
