"""The parsing of external texts: query parameters, and fields of forms."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

from mq.client.operations import time_expressions

_LONG = range(-(2**63), 2**63)
MOST_TEXT = 10_000  # characters of a query parameter


class BadQuery(Exception):
    """An invalid request, with one line that explains it. Answered with 400."""


class BadField(BadQuery):
    """An invalid field of a form: ``field`` is its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class BadValues(BadQuery):
    """Invalid fields: ``errors`` has a line for each, by the field's name."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {line}" for name, line in errors.items()))
        self.errors = dict(errors)


@dataclass(frozen=True, slots=True)
class Reading:
    """The context of parsing: the time in ms since 1970, and the user's time zone."""

    now: int
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a parameter. ``read`` raises ValueError with the expected form."""

    name: str  # text, integer, moment, flag or choice
    read: Callable[[str, Reading], Any]
    choices: tuple[str, ...] = ()


def _text(given: str, _: Reading) -> str:
    if len(given) > MOST_TEXT:
        raise ValueError(f"expected at most {MOST_TEXT} characters")
    return given


def _integer(given: str, _: Reading) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", given) or int(given) not in _LONG:
        raise ValueError("expected a whole number")
    return int(given)


def _flag(given: str, _: Reading) -> bool:
    if given in ("1", "true", "on", "yes"):
        return True
    if given in ("0", "false", "off", "no"):
        return False
    raise ValueError("expected true or false")


def _moment(given: str, reading: Reading) -> int:
    """Return ms since 1970, from each form that commands accept; the default zone is the user's.

    A number has at least nine digits: a smaller one is a typing error, not a time of messages.
    """
    given = given.strip()
    try:
        if re.fullmatch(r"[+-]?[0-9]*", given) and not re.fullmatch(r"[0-9]{9,16}", given):
            raise ValueError
        return time_expressions.parse(given, reading.now / 1000, reading.zone)
    except ValueError:
        raise ValueError('expected a time such as "2026-11-23 14:05", "15m" (ago), or ms') from None


text = Kind("text", _text)
integer = Kind("integer", _integer)
flag = Kind("flag", _flag)
moment = Kind("moment", _moment)


def choice(*values: str) -> Kind:
    """Return the kind for one of these words."""

    def read(given: str, _: Reading) -> str:
        if given not in values:
            raise ValueError(f"expected one of {', '.join(values)}")
        return given

    return Kind("choice", read, values)
