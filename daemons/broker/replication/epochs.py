"""Epochs: which master wrote which part of the log.

A controller counts its elections in a set of brokers, and the master of each begins a part of the
log. Two logs that have an epoch beginning at the same offset are the same up to the end of that
epoch, or of the shorter one of the two logs; so a slave finds in the list of its master what the
two have in common (`common_point`).

The file (storePathEpochFile) is Java's, which reads ours: a count, a checksum, a line for each
epoch (CheckpointFile, EpochFileCache). An epoch of which nothing was written is replaced by the
next one that begins where it does. (Java keeps the older, and writes on under its number; whether
two brokers have written there is then not to be seen.)
"""

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mq.client.machine import files
from mq.daemons.broker.store.replica import NotReplicated
from mq.daemons.state_file import read_with_backup, write_atomically

#: So many fit into the handshake of a Java master (AutoSwitchHAConnection).
MOST_EPOCHS = 1000
#: Where the last epoch ends: it goes on.
NO_END = (1 << 63) - 1


class Epoch(NamedTuple):
    """An epoch, and the physical offset at which it begins."""

    number: int
    start: int


class Epochs:
    """The epochs of a log, oldest first. All that changes them raises OSError, and then has
    changed nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._all: list[Epoch] = []
        self._starts: list[int] = []

    def load(self, end: int) -> None:
        """Read the file of a log that ends at an offset.

        What begins behind that has lost its log, or a cut was interrupted behind the log's. Raises
        OSError for a file that is there and cannot be read.
        """
        found = read_with_backup(self._path, decode) or []
        kept = [epoch for epoch in found if epoch.start <= end]
        self._set(found)
        if kept != found:
            self._save(kept)

    @property
    def all(self) -> Sequence[Epoch]:
        return self._all

    @property
    def last(self) -> Epoch | None:
        return self._all[-1] if self._all else None

    def at(self, offset: int) -> tuple[Epoch, int] | None:
        """The epoch in which an offset lies, and where that ends; None before the first."""
        number = bisect_right(self._starts, offset)
        if not number:
            return None
        end = self._starts[number] if number < len(self._starts) else NO_END
        return self._all[number - 1], end

    def begin(self, number: int, minimum: int, end: int, *, is_whole: bool) -> None:
        """This broker is master from now on, with a log from an offset up to another.

        One that goes on in its epoch keeps it if its log is surely whole; else what it has lost may
        be in others, under the same number. A list without any begins where the log does: a slave
        that has nothing is sent all of it.
        """
        last = self.last
        if last is not None and last.number == number and is_whole:
            return
        kept = [epoch for epoch in self._all if epoch.number < number and epoch.start < end]
        self._save([*kept, Epoch(number, end if kept else minimum)])

    def follow(self, number: int, start: int) -> None:
        """The master sends bytes of an epoch. Raises NotReplicated where that cannot be."""
        last = self.last
        if last == (number, start):
            return
        if last is not None and (number <= last.number or start < last.start):
            raise NotReplicated(
                f"the master sends epoch {number} from {start} on, and here epoch {last.number} "
                f"has begun at {last.start}"
            )
        self._save([*(epoch for epoch in self._all if epoch.start < start), Epoch(number, start)])

    def common_point(self, theirs: Sequence[Epoch], their_end: int, own_end: int) -> int | None:
        """The physical offset up to which this log and another one, which ends at ``their_end``,
        are the same; None if no epoch is."""
        ends = dict(zip(theirs, [*(epoch.start for epoch in theirs[1:]), their_end], strict=True))
        end = own_end
        for epoch in reversed(self._all):
            if epoch in ends:
                return min(end, ends[epoch])
            end = epoch.start
        return None

    def adopt(self, theirs: Sequence[Epoch], end: int) -> None:
        """The log is that of the master, which has these epochs, and ends at an offset: so are its
        epochs. Older ones than the master has still stay."""
        if not theirs:
            return
        first = theirs[0]
        older = [
            epoch
            for epoch in self._all
            if epoch.number < first.number and epoch.start < min(first.start, end)
        ]
        wanted = [*older, *(epoch for epoch in theirs if epoch.start < end)]
        if wanted != self._all:
            self._save(wanted)

    def drop_before(self, minimum: int) -> None:
        """Forget the epochs of which nothing is left in a log that begins at an offset."""
        kept = bisect_right(self._starts, minimum) - 1
        if kept > 0:
            self._save(self._all[kept:])

    def _save(self, epochs: list[Epoch]) -> None:
        write_atomically(self._path, encode(epochs))
        if not epochs:  # Java reads the other where this one has nothing
            files.remove(self._path.with_name(self._path.name + ".bak"))
        self._set(epochs)

    def _set(self, epochs: list[Epoch]) -> None:
        self._all = epochs
        self._starts = [epoch.start for epoch in epochs]


def encode(epochs: Sequence[Epoch]) -> bytes:
    """The content of the file."""
    lines = "".join(f"{epoch.number}-{epoch.start}\n" for epoch in epochs).encode()
    return b"%d\n%d\n" % (len(epochs), _checksum(lines)) + lines


def decode(data: bytes) -> list[Epoch]:
    """Read the content of a file. Raises ValueError."""
    count, checksum, lines = (*data.split(b"\n", 2), b"", b"")[:3]
    found = []
    for line in lines.decode("ascii").splitlines():
        number, start = map(int, line.split("-"))
        found.append(Epoch(number, start))
    if len(found) != int(count):
        raise ValueError(f"{len(found)} epochs, and it says {int(count)}")
    if int(checksum) not in (0, _checksum(lines)):
        raise ValueError("the checksum is wrong")
    check_rising(found)
    return found


def check_rising(epochs: Sequence[Epoch]) -> None:
    """Raises ValueError if an epoch is not behind the one before it, or cannot be one."""
    before = Epoch(-1, -1)
    for epoch in epochs:
        if epoch.number >= 1 << 31 or epoch.start >= NO_END:
            raise ValueError(f"there is no epoch {tuple(epoch)}")
        if epoch.number <= before.number or epoch.start <= before.start:
            raise ValueError(f"{tuple(epoch)} comes behind {tuple(before)}")
        before = epoch


def _checksum(lines: bytes) -> int:
    return zlib.crc32(lines) & 0x7FFFFFFF  # UtilAll.crc32
