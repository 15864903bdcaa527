"""Points in time and durations in options.

Errors of `mq.client.operations.time_expressions` are usage errors.

All time options accept the same forms, and describe them with the same words.
"""

from typing import TYPE_CHECKING

from mq.cli.runtime.errors import UsageError
from mq.client.operations import time_expressions

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from mq.cli.runtime.call import Call

_LAST = 2**63 - 1
FORMS = "2026-07-01T12:00[Z], yyyy-MM-dd#HH:mm:ss:SSS, ms since 1970, now, or an age such as 15m"


def parse(text: str, flag: str, now: float) -> int:
    """Return milliseconds since 1970. `now` is in seconds; `15m` is subtracted from it.

    A time without a zone is local. Raises UsageError that names `flag`.
    """
    try:
        return time_expressions.parse(text, now)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}", hint=f"use {FORMS}") from None


def calendar(text: str, flag: str, now: float, zone: "tzinfo | None" = None) -> "datetime":
    """Return the same as a date, in `zone` or the local one. Raises UsageError."""
    from datetime import datetime

    moment = parse(text, flag, now)
    try:
        return datetime.fromtimestamp(moment / 1000, zone)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{flag}: {text!r} is not in the years 1 to 9999", hint=f"use {FORMS}"
        ) from None


def span_of(call: "Call", begin: str | None, end: str | None) -> tuple[int, int]:
    """Return the times of -b and -e; the default is everything. Raises UsageError."""
    now = call.environment.clock()
    first = 0 if begin is None else parse(begin, "-b/--beginTimestamp", now)
    return first, _LAST if end is None else parse(end, "-e/--endTimestamp", now)


# For `typer.Option(parser=…)`: a number, or a duration such as `15m`.
seconds = time_expressions.seconds
milliseconds = time_expressions.milliseconds
