"""Epochs: which master wrote which part of the log.

A controller counts the elections of a replica set, and each elected master starts a new part of the
log. If an epoch starts at the same offset in two logs, they are equal up to the end of that epoch,
or of the shorter log; so a slave finds the common part from the list of its master
(`common_point`).

The file (storePathEpochFile) is compatible with Java's in both directions: a count, a checksum, a
line for each epoch (CheckpointFile, EpochFileCache). An epoch without records is replaced by the
next one that starts at its offset. (Java keeps the older one and writes on under its number; then
it is not visible whether two brokers have written there.)
"""

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mq.client.machine import files
from mq.daemons.broker.store import NotReplicated
from mq.daemons.state_file import read_with_backup, write_atomically

# As many fit into the handshake of a Java master (AutoSwitchHAConnection).
MOST_EPOCHS = 1000
# The end of the last epoch, which continues.
NO_END = (1 << 63) - 1


class Epoch(NamedTuple):
    """An epoch, and the physical offset at which it starts."""

    number: int
    start: int


class Epochs:
    """The epochs of a log, oldest first. All changes raise OSError, after which nothing has
    changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._all: list[Epoch] = []
        self._starts: list[int] = []

    def load(self, end: int) -> None:
        """Read the file of a log that ends at an offset.

        Drops epochs that start after that offset: their records are lost, or a truncation was
        interrupted after that of the log. Raises OSError if an existing file cannot be read.
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
        """The epoch of an offset, and the epoch's end; None before the first epoch."""
        number = bisect_right(self._starts, offset)
        if not number:
            return None
        end = self._starts[number] if number < len(self._starts) else NO_END
        return self._all[number - 1], end

    def begin(self, number: int, minimum: int, end: int, *, is_whole: bool) -> None:
        """Start an epoch: this broker is master from now on, with a log from ``minimum`` to
        ``end``.

        A master that continues in its epoch keeps it if its log is surely complete; otherwise other
        replicas may have the lost records under the same number. An empty list starts at the start
        of the log, because an empty slave gets the whole log.
        """
        last = self.last
        if last is not None and last.number == number and is_whole:
            return
        kept = [epoch for epoch in self._all if epoch.number < number and epoch.start < end]
        self._save([*kept, Epoch(number, end if kept else minimum)])

    def follow(self, number: int, start: int) -> None:
        """Follow the master to an epoch. Raises NotReplicated if that is impossible."""
        last = self.last
        if last == (number, start):
            return
        if last is not None and (number <= last.number or start < last.start):
            raise NotReplicated(
                f"the master sends epoch {number} from {start} on, but epoch {last.number} "
                f"has started at {last.start} here"
            )
        self._save([*(epoch for epoch in self._all if epoch.start < start), Epoch(number, start)])

    def common_point(self, theirs: Sequence[Epoch], their_end: int, own_end: int) -> int | None:
        """The physical offset up to which this log equals another one, which ends at ``their_end``;
        None without a common epoch.
        """
        ends = dict(zip(theirs, [*(epoch.start for epoch in theirs[1:]), their_end], strict=True))
        end = own_end
        for epoch in reversed(self._all):
            if epoch in ends:
                return min(end, ends[epoch])
            end = epoch.start
        return None

    def adopt(self, theirs: Sequence[Epoch], end: int) -> None:
        """Set the epochs to those of the master, to whose log this one, which ends at ``end``, is
        equal. Epochs older than the master's are kept.
        """
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
        """Drop the epochs without records in a log that starts at ``minimum``."""
        kept = bisect_right(self._starts, minimum) - 1
        if kept > 0:
            self._save(self._all[kept:])

    def _save(self, epochs: list[Epoch]) -> None:
        write_atomically(self._path, encode(epochs))
        if not epochs:  # Java reads the backup if this file is empty
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
    """Parse the content of a file. Raises ValueError."""
    count, checksum, lines = (*data.split(b"\n", 2), b"", b"")[:3]
    found = []
    for line in lines.decode("ascii").splitlines():
        number, start = map(int, line.split("-"))
        found.append(Epoch(number, start))
    if len(found) != int(count):
        raise ValueError(f"{len(found)} epochs, but the count is {int(count)}")
    if int(checksum) not in (0, _checksum(lines)):
        raise ValueError("the checksum is wrong")
    check_rising(found)
    return found


def check_rising(epochs: Sequence[Epoch]) -> None:
    """Raise ValueError if an epoch does not come after the previous one, or is invalid."""
    before = Epoch(-1, -1)
    for epoch in epochs:
        if epoch.number >= 1 << 31 or epoch.start >= NO_END:
            raise ValueError(f"{tuple(epoch)} is not a valid epoch")
        if epoch.number <= before.number or epoch.start <= before.start:
            raise ValueError(f"{tuple(epoch)} comes after {tuple(before)}")
        before = epoch


def _checksum(lines: bytes) -> int:
    return zlib.crc32(lines) & 0x7FFFFFFF  # UtilAll.crc32
