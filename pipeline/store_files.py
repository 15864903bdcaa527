"""Files of a commit log, and the splits of them that tasks read."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_NAME = re.compile(r"\d{20}", re.ASCII)  # the offset of a file's first byte
_COMMIT_LOG = "commitlog"
_HEAD = 8  # bytes of the smallest record or filler at the start of a file


class Damage(NamedTuple):
    """A part of a log that should hold messages, but does not.

    `position` is in the file, `size` in bytes. `is_end` marks what a crash may leave at the end of
    the log: no message is lost with it that a broker would have recovered.
    """

    path: str
    position: int
    size: int
    reason: str
    is_end: bool = False

    def __str__(self) -> str:
        return f"{self.path}, byte {self.position}: {self.reason} ({self.size} bytes left out)"


@dataclass(frozen=True)
class LogFile:
    """A file of a commit log; `start` is the log's offset of its first byte."""

    path: str
    start: int
    size: int
    is_last: bool  # of the non-empty files

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class FileSplit:
    """The records that begin in a file between two positions."""

    file: LogFile
    begin: int
    end: int


def find_files(paths: Iterable[str]) -> list[LogFile]:
    """Return the files of one log, in order. Each path is a store, or the folder of its log.

    Raises OSError for unreadable files, ValueError for a folder without a log.
    """
    found: dict[int, str] = {}
    for path in paths:
        inner = os.path.join(path, _COMMIT_LOG)
        folder = inner if os.path.isdir(inner) else path
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
        if not names and folder is path:
            raise ValueError(f"{path} is neither a store nor the folder of a commit log")
        for name in names:
            if int(name) in found:
                raise ValueError(f"there are two files {name}: the paths are of different stores")
            found[int(name)] = os.path.join(folder, name)
    sizes = {start: os.stat(path).st_size for start, path in found.items()}
    last = max((start for start, path in found.items() if _has_begun(path)), default=-1)
    return [LogFile(found[at], at, sizes[at], at == last) for at in sorted(found) if at <= last]


def gaps(files: Sequence[LogFile]) -> list[Damage]:
    """Return the places where files are missing or too short."""
    usual = max((file.size for file in files), default=0)
    damage = []
    for number, file in enumerate(files):
        short = file.size < usual
        if number + 1 == len(files):
            if short:
                reason = "the file is shorter than others"
                damage.append(Damage(file.path, file.size, 0, reason, is_end=True))
        elif file.end != files[number + 1].start:
            missing = files[number + 1].start - file.end
            reason = "the file is shorter than others" if short else "the next file is missing"
            damage.append(Damage(file.path, file.size, missing, reason))
    return damage


def split(file: LogFile, most: int) -> list[FileSplit]:
    """Cut a file into equal parts of at most `most` bytes."""
    count = max(1, -(-file.size // most))
    edges = [file.size * number // count for number in range(count + 1)]
    return [FileSplit(file, *edge) for edge in pairwise(edges)]


def _has_begun(path: str) -> bool:
    """Whether a file has data: Java creates the next file before it is needed."""
    with open(path, "rb") as file:
        return any(file.read(_HEAD))
