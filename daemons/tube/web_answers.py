"""The answers of the administration port of TubeMQ's servers: JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mq.daemons.time_slices import TimeSlices

# levels of an answer that are written in steps: of offsets, those of a topic are one piece
_LEVELS = 4


def refusal(text: str, code: int = 400) -> bytes:
    """Return the answer to a refused request (WebParameterUtils.buildFailResult)."""
    return encoded(dump({"result": False, "errCode": code, "errMsg": text}))


def encoded(text: str) -> bytes:
    """Return JSON as bytes; a lone surrogate, which JSON may contain, as a JSON escape."""
    return text.encode(errors="backslashreplace")


def dump(value: Any) -> str:
    """Return JSON without blanks, as Java's servers write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def dumped(value: Any) -> str:
    """Return the same in steps: an answer may have a million rows."""
    steps, parts = TimeSlices(), []
    for part in _parts(value, _LEVELS):
        parts.append(part)
        await steps.rest()
    return "".join(parts)


def _parts(value: Any, levels: int) -> Iterator[str]:
    """Yield JSON in pieces: everything below these levels is one of them."""
    if not levels or not isinstance(value, list | Mapping):
        yield dump(value)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield "," if number else "["
            yield from _parts(item, levels - 1)
        yield "]" if value else "[]"
    else:
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{dump(str(name))}:"
            yield from _parts(item, levels - 1)
        yield "}" if value else "{}"
