"""Points in time and durations in options; errors of `mq.client.time_expressions` are usage errors.

All options that take a time take it in each form, and say so in the same words.
"""

from typing import TYPE_CHECKING

from mq.cli.runtime.errors import UsageError
from mq.client import time_expressions

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from mq.cli.runtime.call import Call

_LAST = 2**63 - 1
FORMS = "2026-07-01T12:00[Z], yyyy-MM-dd#HH:mm:ss:SSS, ms since 1970, now, or an age such as 15m"


def parse(text: str, flag: str, now: float) -> int:
    """Milliseconds since 1970. `now` in seconds is what `15m` counts back from.

    A time without a zone is local. Raises UsageError that names `flag`.
    """
    try:
        return time_expressions.parse(text, now)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}", hint=f"write {FORMS}") from None


def calendar(text: str, flag: str, now: float, zone: "tzinfo | None" = None) -> "datetime":
    """The same as a date, in `zone` or here. Raises UsageError, also where no calendar has it."""
    from datetime import datetime

    moment = parse(text, flag, now)
    try:
        return datetime.fromtimestamp(moment / 1000, zone)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{flag}: {text!r} is in no year from 1 to 9999", hint=f"write {FORMS}"
        ) from None


def span_of(call: "Call", begin: str | None, end: str | None) -> tuple[int, int]:
    """The times of -b and -e, by default all there are, as mqadmin has them. Raises UsageError."""
    now = call.environment.clock()
    first = 0 if begin is None else parse(begin, "-b/--beginTimestamp", now)
    return first, _LAST if end is None else parse(end, "-e/--endTimestamp", now)


# For `typer.Option(parser=…)`: the value of an option that takes a number, as ever, or `15m`.
seconds = time_expressions.seconds
milliseconds = time_expressions.milliseconds
