"""JSON in bodies, as values: those alone that are the same when they are written again.

Readers of JSON differ in what they lose. A number may have more digits than a double has, an object
two values of one name, and Python takes NaN and half a surrogate pair, which no JSON has. A body
with anything of that is text to whoever shows or exports it.
"""

import json
from decimal import Decimal
from math import isfinite
from typing import Any

import orjson

# Bytes of a body that is read as JSON: as values they take up to thirty times as much memory.
# Brokers take no larger message, unless they are set to.
MOST_JSON = 4 * 1024 * 1024


def value_of(body: bytes) -> Any:
    """The value that a body is in JSON. Raises ValueError where it is none, is larger than
    MOST_JSON, or would be another one after it was written."""
    if len(body) > MOST_JSON:
        raise ValueError(f"{len(body)} bytes; {MOST_JSON} are read as JSON at most")
    value = orjson.loads(body)
    try:
        written = orjson.dumps(value)
    except orjson.JSONEncodeError as error:  # reading takes deeper nesting
        raise ValueError(str(error)) from None
    return value if written == body else exact(body)


def exact(text: bytes | str) -> Any:
    """The value of a text in JSON, with integers of any size. Raises ValueError for what that does
    not keep: digits of other numbers, the sign of -0, and all but one value of a name."""
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
    """The value of a text in JSON as orjson has it, but for integers of any size. Raises ValueError
    where there are too many digits, or nesting is too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def dumps(value: Any) -> bytes:
    """A value as JSON in one line. Raises ValueError for nesting that is too deep."""
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
    except ArithmeticError:  # an exponent of more digits than decimals have
        pass
    raise ValueError(f"{text[:40]} has more digits than a double")


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name has two values")
    return found
