"""Points in time and durations in options: `mq.client.moments`, with what is wrong as an error.

All options that take a time take it in each form, and say so in the same words.
"""

from typing import TYPE_CHECKING

from mq.cli.runtime.errors import UsageError
from mq.client import moments

if TYPE_CHECKING:
    from mq.cli.runtime.call import Call

_LAST = 2**63 - 1
FORMS = "15m (ago), 2026-07-01T12:00[Z], yyyy-MM-dd#HH:mm:ss:SSS, ms since 1970, or now"


def parse(text: str, flag: str, now: float) -> int:
    """Milliseconds since 1970. `now` in seconds is what `15m` counts back from.

    A time without a zone is local. Raises UsageError that names `flag`.
    """
    try:
        return moments.parse(text, now)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}", hint=f"write {FORMS}") from None


def span_of(call: "Call", begin: str | None, end: str | None) -> tuple[int, int]:
    """The times of -b and -e, by default all there are, as mqadmin has them. Raises UsageError."""
    now = call.environment.clock()
    first = 0 if begin is None else parse(begin, "-b/--beginTimestamp", now)
    return first, _LAST if end is None else parse(end, "-e/--endTimestamp", now)


# For `typer.Option(parser=…)`: the value of an option that takes a number, as ever, or `15m`.
seconds = moments.seconds
milliseconds = moments.milliseconds
