"""Files of a commit log, and the splits of them that tasks read."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

_NAME = re.compile(r"\d{20}", re.ASCII)  # the offset of a file's first byte
_COMMIT_LOG = "commitlog"
_HEAD = 8  # bytes of the smallest thing that a file begins with


class Damage(NamedTuple):
    """A part of a log that should be messages, and is something else.

    `position` is one in the file, `size` in bytes. `is_end` is what a crash may leave at the end of
    the log: no message that a broker would have read again is lost with it.
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
    is_last: bool  # of those that hold something

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class FileSplit:
    """What begins in a file from one position up to another."""

    file: LogFile
    begin: int
    end: int


def find_files(paths: Iterable[str]) -> list[LogFile]:
    """The files of one log, in their order. Each path is a store, or the folder of its log.

    Raises OSError for what cannot be read, ValueError for a folder that has no log.
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
    """Where files are missing, or too short."""
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
            reason = "the file is shorter than others" if short else "a file is missing behind it"
            damage.append(Damage(file.path, file.size, missing, reason))
    return damage


def split(file: LogFile, most: int) -> list[FileSplit]:
    """Parts of a file that are equal, and not larger than `most` bytes."""
    count = max(1, -(-file.size // most))
    edges = [file.size * number // count for number in range(count + 1)]
    return [FileSplit(file, *edge) for edge in pairwise(edges)]


def _has_begun(path: str) -> bool:
    """Whether anything was written: Java makes the next file before it is needed."""
    with open(path, "rb") as file:
        return any(file.read(_HEAD))
