"""Reads the audit backwards, in bounded amounts."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from mq.client.machine import files

BLOCK = 64 * 1024
MAX_BYTES = 8 * 1024 * 1024  # read for one page
MAX_LINE = 256 * 1024  # a longer line was not written by the console


@dataclass(frozen=True, slots=True)
class Line:
    """An entry, and the position of its line in the file."""

    position: int
    entry: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines, the newest first. ``older`` is the position to continue at, None at the start of the
    file; ``whole`` is False if the limit came before enough lines were found."""

    lines: tuple[Line, ...]
    older: int | None
    whole: bool = True


def search(
    path: Path, wanted: Callable[[Mapping[str, Any]], bool], count: int, before: int | None = None
) -> AuditPage:
    """Return the last ``count`` matching lines of those that start before a position.

    Invalid lines are skipped. Raises OSError; a missing file is empty.
    """
    found: list[Line] = []
    try:
        with files.opened(path, os.O_RDONLY) as descriptor:
            size = files.fstat(descriptor).st_size
            end = size if before is None else max(0, min(before, size))
            lowest = max(0, end - MAX_BYTES)
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
    """Yield position and content of each complete line between two positions, backwards."""
    kept = b""  # the start of the read data: the end of a line that starts before it
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
        if len(kept) > MAX_LINE:
            kept = b""
    if kept and lowest == 0:
        yield 0, kept


def _entry(raw: bytes) -> Mapping[str, Any] | None:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
