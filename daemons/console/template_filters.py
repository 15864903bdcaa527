"""Values in readable form: filters of the templates. None is unknown, and shown as "?"."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

UNKNOWN = "?"

# Characters that are invisible or change the appearance of others: controls except tab and line
# feed, marks for the direction of writing, spaces without width, line separators.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")
_SPACE = "\u202f"  # narrow and non-breaking: between the groups of a number


def _mark(match: re.Match[str]) -> str:
    return f"⟨{ord(match[0]):04X}⟩"


def plain(value: Any) -> Any:
    """Return text with marks for invisible characters; other values unchanged. For every output."""
    if isinstance(value, str) and _HIDDEN.search(value):
        marked = _HIDDEN.sub(_mark, value)
        # Escaped text, too: gettext returns it for a sentence with a name in it.
        return Markup(marked) if isinstance(value, Markup) else marked
    return UNKNOWN if value is None else value


def shown(value: Any) -> Markup:
    """Return the same, with the marks distinct from the surrounding text."""
    # A sentence from gettext is escaped already: `escape` leaves it and its parts unchanged.
    text = value if isinstance(value, Markup) else UNKNOWN if value is None else str(value)
    if not _HIDDEN.search(text):
        return escape(text)
    parts = []
    place = 0
    for match in _HIDDEN.finditer(text):
        parts.append(escape(text[place : match.start()]))
        parts.append(Markup('<span class="hidden-char">{}</span>').format(_mark(match)))
        place = match.end()
    parts.append(escape(text[place:]))
    return Markup("").join(parts)


def verbatim(value: Any) -> Markup:
    """Return escaped text without marks: for the values of form fields, which are sent back.
    Invisible
    characters are written as numeric references, which are not marked."""
    text = escape("" if value is None else str(value))
    return Markup(_HIDDEN.sub(lambda match: f"&#x{ord(match[0]):X};", text))


def number(value: Any, places: int = 0) -> str:
    """Return 1234567 as "1 234 567", with narrow spaces, also for floats."""
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:,.{places}f}".replace(",", _SPACE)
    return f"{int(value):,}".replace(",", _SPACE)


def rate(value: Any) -> str:
    """Return a rate per second: "12.3/s"; large ones without decimals."""
    if value is None:
        return UNKNOWN
    places = 0 if value == 0 or abs(value) >= 100 else 1 if abs(value) >= 1 else 2
    return number(float(value), places) + "/s"


def in_bytes(value: Any) -> str:
    """Return bytes in units of 1024: "1.5 MB"."""
    if value is None:
        return UNKNOWN
    size = float(value)
    for unit in _SIZES:
        if abs(size) < 1024 or unit == _SIZES[-1]:
            break
        size /= 1024
    return f"{size:.0f}\u00a0{unit}" if unit == "B" or size >= 100 else f"{size:.1f}\u00a0{unit}"


def percent(value: Any) -> str:
    """Return a part of 1 as a percentage."""
    return UNKNOWN if value is None else f"{value * 100:.1f}\u00a0%"


def moment_text(value: Any, zone: tzinfo) -> str:
    """Return ms since 1970 as "2026-11-23 14:05:06.123"."""
    if value is None:
        return UNKNOWN
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(value))
        return at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S.") + f"{int(value) % 1000:03d}"
    except (OverflowError, ValueError):
        return str(value)  # a time from a peer may be any number


def moment(value: Any, zone: tzinfo) -> Markup:
    """Return the same as an HTML element with the time in machine-readable form."""
    if value is None:
        return Markup(UNKNOWN)
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(value))
        iso = at.isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return escape(str(value))
    return Markup('<time datetime="{}">{}</time>').format(iso, moment_text(value, zone))


def span(value: Any) -> str:
    """Return a duration in ms in its two largest units: "3 h 5 min"."""
    if value is None:
        return UNKNOWN
    left = abs(int(value))
    sign = "-" if value < 0 else ""
    if left < 1000:
        return f"{sign}{left}\u00a0ms"
    if left < 60_000:
        return f"{sign}{left / 1000:.3g}\u00a0s"
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
    for place, (size, unit) in enumerate(units):
        if left >= size:
            text = f"{left // size}\u00a0{unit}"
            rest = left % size
            if place + 1 < len(units) and rest >= units[place + 1][0]:
                text += f"\u00a0{rest // units[place + 1][0]}\u00a0{units[place + 1][1]}"
            return sign + text
    return f"{sign}{left}\u00a0ms"


def quoted(value: Any) -> str:
    """Return a name as one part of a path."""
    return quote(str(value), safe="")
