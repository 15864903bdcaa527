"""JSON bodies as values, if they are unchanged when written again.

JSON parsers lose different things. A number may have more digits than a double, an object two
values with one name, and Python accepts NaN and unpaired surrogates, which JSON does not have. A
body with any of these is shown and exported as text.
"""

import json
from decimal import Decimal
from math import isfinite
from typing import Any

import orjson

# The limit of a body that is parsed as JSON: parsed, it takes up to thirty times as much memory.
# Brokers accept no larger messages by default.
MOST_JSON = 4 * 1024 * 1024


def value_of(body: bytes) -> Any:
    """Parse a body as JSON. Raises ValueError if it is not JSON, is larger than MOST_JSON, or would
    change when written.
    """
    if len(body) > MOST_JSON:
        raise ValueError(f"{len(body)} bytes; {MOST_JSON} are read as JSON at most")
    value = orjson.loads(body)
    try:
        written = orjson.dumps(value)
    except orjson.JSONEncodeError as error:  # the parser accepts deeper nesting
        raise ValueError(str(error)) from None
    return value if written == body else exact(body)


def exact(text: bytes | str) -> Any:
    """Parse JSON, with integers of any size. Raises ValueError for content that would be lost:
    digits of other numbers, the sign of -0, and all but one value of a name.
    """
    try:
        return json.loads(
            text,
            parse_int=_int,
            parse_float=_float,
            parse_constant=_refused,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise ValueError("nested too deep") from None


def with_integers(text: bytes) -> Any:
    """Parse JSON as orjson does, but with integers of any size. Raises ValueError for too many
    digits, or too deep nesting.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def dumps(value: Any) -> bytes:
    """Write a value as JSON in one line. Raises ValueError for too deep nesting."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        if "64-bit" not in str(error):
            raise ValueError(str(error)) from None
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("nested too deep") from None


def _int(text: str) -> int:
    if text == "-0":
        raise ValueError("-0 is 0 as an integer")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    try:
        if isfinite(value) and Decimal(text) == Decimal(repr(value)):
            return value
    except ArithmeticError:  # an exponent with more digits than decimals support
        pass
    raise ValueError(f"{text[:40]} has more digits than a double")


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name has two values")
    return found
