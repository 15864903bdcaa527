"""Numbers in text, parsed like Java's Integer.valueOf, Long.valueOf and Double.valueOf."""

import re

from mq.daemons.broker.filters.errors import NotComparableError

INTEGER_LIMIT = 1 << 31
LONG_LIMIT = 1 << 63

# Text with at most so many digits is within the limits without a comparison.
_SURELY_INTEGER = 9
_SURELY_LONG = 18

_DECIMAL = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"
)
_BLANKS = "".join(map(chr, range(0x21)))


def integer_value(text: bytes) -> int:
    """Integer.valueOf. Raises NotComparableError."""
    if text.isdigit() and len(text) <= _SURELY_INTEGER:
        return int(text)
    return _whole_number(text, INTEGER_LIMIT)


def long_value(text: bytes) -> int:
    """Long.valueOf. Raises NotComparableError."""
    if text.isdigit() and len(text) <= _SURELY_LONG:
        return int(text)
    return _whole_number(text, LONG_LIMIT)


def _whole_number(raw: bytes, limit: int) -> int:
    text = raw.decode("utf-8", "replace")
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Digits of any script count, but Java reads UTF-16 units and so accepts only the first plane.
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise NotComparableError
    digits = digits.lstrip("0") or "0"
    if len(digits) > 40:  # out of range, and int() may refuse it
        raise NotComparableError
    number = -int(digits) if text[0] == "-" else int(digits)
    if not -limit <= number < limit:
        raise NotComparableError
    return number


def double_value(raw: bytes) -> float:
    """Double.valueOf. Raises NotComparableError."""
    text = raw.decode("utf-8", "replace").strip(_BLANKS)
    if _DECIMAL.fullmatch(text):
        # float() accepts Java's spellings of a decimal number, but not the type suffix.
        return float(text if text[-1] in "Ny" else text.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.rstrip("fFdD") if _has_type(text) else text)
        except OverflowError:
            return float("-inf" if text[0] == "-" else "inf")
    raise NotComparableError


def _has_type(text: str) -> bool:
    return text[-1] in "fFdD"  # after the exponent, whose digits are decimal
