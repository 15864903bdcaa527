"""Reads the audit from its end, so much at a time and no more."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from mq.client.machine import files

BLOCK = 64 * 1024
MOST_BYTES = 8 * 1024 * 1024  # that one page looks at
MOST_LINE = 256 * 1024  # a longer one is not ours


@dataclass(frozen=True, slots=True)
class Line:
    """An entry, and where its line begins in the file."""

    position: int
    entry: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines, the newest first. ``older`` is where to go on, None where the file begins; ``whole``
    is False where the bound came before enough was found."""

    lines: tuple[Line, ...]
    older: int | None
    whole: bool = True


def search(
    path: Path, wanted: Callable[[Mapping[str, Any]], bool], count: int, before: int | None = None
) -> AuditPage:
    """The last ``count`` lines that are wanted, of those that begin before a position.

    Lines that are damaged are passed over. Raises OSError; a file that is not there is empty.
    """
    found: list[Line] = []
    try:
        with files.opened(path, os.O_RDONLY) as descriptor:
            size = files.fstat(descriptor).st_size
            end = size if before is None else max(0, min(before, size))
            lowest = max(0, end - MOST_BYTES)
            for position, raw in _backwards(descriptor, end, lowest):
                entry = _entry(raw)
                if entry is not None and wanted(entry):
                    found.append(Line(position, entry))
                    if len(found) == count:
                        return AuditPage(tuple(found), position or None)
            return AuditPage(tuple(found), lowest or None, whole=lowest == 0)
    except FileNotFoundError:
        return AuditPage((), None)


def _backwards(descriptor: int, end: int, lowest: int) -> Iterator[tuple[int, bytes]]:
    """Position and content of each whole line between two positions, the last one first."""
    kept = b""  # the beginning of what was read: the end of a line whose start lies before
    position = end
    while position > lowest:
        start = max(lowest, position - BLOCK)
        block = files.pread(descriptor, position - start, start) + kept
        parts = block.split(b"\n")
        kept = parts[0]
        at = start + len(block)
        for part in reversed(parts[1:]):
            at -= len(part)
            if part:
                yield at, part
            at -= 1
        position = start
        if len(kept) > MOST_LINE:
            kept = b""
    if kept and lowest == 0:
        yield 0, kept


def _entry(raw: bytes) -> Mapping[str, Any] | None:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
