"""Parsers for parts of the strings within messages: numbers, names, flags. All raise
MalformedText.
"""

from mq.protocol.tube.errors import MalformedText

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1


def count(text: str, part: str, most: int = MAX_INT) -> int:
    """Parse a part that is a non-negative number."""
    part = part.strip()
    if not (part.isascii() and part.isdigit()) or len(part) > 19 or int(part) > most:
        raise MalformedText(text, f"{part[:40]!r} is not a number from 0 to {most}")
    return int(part)


def name(text: str, part: str) -> str:
    """Parse a part that is a name: not blank."""
    part = part.strip()
    if not part:
        raise MalformedText(text, "a name in it is blank")
    return part


def truth(text: str, part: str) -> bool:
    """Parse a part that is `true` or `false`."""
    word = part.strip().lower()
    if word not in ("true", "false"):
        raise MalformedText(text, f"{part[:40]!r} is neither true nor false")
    return word == "true"


def port_number(text: str, part: str) -> int:
    """Parse a part that is a port."""
    port = count(text, part, 65535)
    if port == 0:
        raise MalformedText(text, "0 is not a port")
    return port


def word(value: bool) -> str:
    """Format a flag as `true` or `false`, as Java does."""
    return "true" if value else "false"


def named(text: str, form: str) -> tuple[str, str, str]:
    """Split a text at the first `#` into the name before it and the rest."""
    first, separator, rest = text.strip().partition("#")
    if not separator:
        raise MalformedText(text, form)
    return name(text, first), separator, rest


def counts(text: str, item: str, number: int) -> list[int]:
    """Parse non-negative numbers separated by `:`, exactly `number` of them."""
    parts = item.split(":")
    if len(parts) != number:
        raise MalformedText(text, f"{item[:40]!r} has {len(parts)} parts instead of {number}")
    return [count(text, part) for part in parts]
