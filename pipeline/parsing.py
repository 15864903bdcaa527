"""Parsers of options: of `format("rocketmq")` and of jobs.

Each function returns the value, or raises ValueError that describes the mistake in the text.
"""

import json
import re
from collections.abc import Callable
from datetime import datetime

from mq.client.operations import time_expressions
from mq.client.transport.caller import parse_name_servers
from mq.pipeline.offsets import EARLIEST, LATEST, Offsets, from_nested
from mq.protocol.names import check_topic

Position = int | Offsets  # EARLIEST, LATEST or an offset for each queue


def text(text: str) -> str:
    return text.strip()


def name_servers(text: str) -> str:
    return ";".join(parse_name_servers(text))


def topics(text: str) -> tuple[str, ...]:
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("names no topic")
    return tuple(check_topic(name) for name in names)


def patterns(text: str) -> tuple[str, ...]:
    """Parse names or glob patterns separated by commas."""
    return names(text)


def names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    found = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not found:
        raise ValueError("names nothing")
    return found


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def position(text: str, read: Callable[[object], Offsets] = from_nested) -> Position:
    """Parse a position. `read` converts JSON to offsets, or raises ValueError."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    try:
        return read(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"neither earliest nor latest nor JSON: {error}") from None


def time(text: str) -> int:
    """Parse a time; returns ms since 1970."""
    if text.strip().isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is neither ms since 1970 nor a time as in ISO 8601") from None
    if found.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return int(found.timestamp() * 1000)


def yes(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word == "true"


def number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return parse


def seconds(text: str) -> float:
    return time_expressions.duration(text) / 1000


def choice(*names: str) -> Callable[[str], str]:
    """Return a parser of one of these names, in any case."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in names:
            raise ValueError(f"{text!r} is none of {', '.join(names)}")
        return word

    return parse
