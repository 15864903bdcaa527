"""A file or folder of a simulated disk: its visible content, and what a power cut would leave.

Below the visible bytes is the platter: the content of the last fsync, and a list of changes since
then. A disk may have written any of these, in any order, with limits that all known file systems
keep:

- A sector is written whole, as it was in memory at some moment: it may lack later changes, but not
  earlier ones.
- The length of a file takes its values in order: if data written after a change of length survives,
  so does that change.

Writes through a mapping are not system calls: `gather` finds them before the next call.
"""

import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import Process

SECTOR = 512  # bytes that a disk writes as a unit
BLOCK = 4096  # bytes that a file system allocates as a unit


class Change:
    """A write of bytes at a position, or, without bytes, a new length. Immutable."""

    __slots__ = ("data", "number", "position")

    def __init__(self, number: int, position: int, data: bytes | None = None) -> None:
        self.number = number  # in the order of all changes of a disk
        self.position = position
        self.data = data

    def sectors(self) -> Iterator[int]:
        """The positions of the sectors that a write touches."""
        assert self.data is not None
        first = self.position - self.position % SECTOR
        return iter(range(first, self.position + len(self.data), SECTOR))


# Whether a power cut keeps a sector of a write, or a new length or change of names (both at -1).
Keeps = Callable[[object, int], bool]


class Buffer(bytearray):
    """The bytes of a file. Like a writable mapping it can be closed."""

    on_close: Callable[[], None]

    def close(self) -> None:
        self.on_close()


class Frozen:
    """An inode at one moment. Equal moments of one inode share one."""

    __slots__ = ("blocks", "changes", "content", "mode", "modified", "platter", "reserved")

    def __init__(self, inode: "Inode") -> None:
        self.mode = inode.mode
        self.modified = inode.modified
        self.content = inode.content()
        self.platter = bytes(inode.platter)
        self.changes = tuple(inode.changes)
        self.blocks = frozenset(inode.blocks)
        self.reserved = frozenset(inode.reserved)


class Inode:
    """A file or a folder."""

    __slots__ = (
        "blocks",
        "buffer",
        "changes",
        "frozen",
        "is_folder",
        "length",
        "lock",
        "mapped",
        "mappings",
        "mode",
        "modified",
        "names",
        "number",
        "platter",
        "reserved",
    )

    def __init__(self, number: int, *, is_folder: bool, mode: int, now: float) -> None:
        self.number = number
        self.is_folder = is_folder
        self.mode = mode
        self.modified = now
        self.buffer = Buffer()  # the visible content; may be longer than the file
        self.length = 0
        self.names: dict[str, Inode] = {}  # entries of a folder
        self.platter = bytearray()  # content after the last fsync
        self.changes: list[Change] = []  # since that fsync
        self.blocks: set[int] = set()  # written blocks; others are holes
        self.reserved: set[int] = set()  # holes with allocated blocks
        self.mapped: bytearray | None = None  # the last known content of a writable mapping
        self.mappings = 0
        self.lock: Process | None = None
        self.frozen: Frozen | None = None

    # visible content --------------------------------------------------------------------------

    def content(self) -> bytes:
        return bytes(memoryview(self.buffer)[: self.length])

    def set_length(self, length: int, number: int) -> None:
        """Raises BufferError for a file that grows under a mapping."""
        old = self.length
        if length < old:
            self.buffer[length:old] = bytes(old - length)
            left = -(-length // BLOCK)
            self.blocks = {block for block in self.blocks if block < left}
            self.reserved = {block for block in self.reserved if block < left}
        elif length > len(self.buffer):
            self.buffer.extend(bytes(length - len(self.buffer)))
        self.length = length
        if self.mapped is not None:
            self.mapped[:] = self.buffer
        self.changes.append(Change(number, length))
        self.frozen = None

    def write(self, position: int, data: bytes, number: int) -> None:
        end = position + len(data)
        if end > self.length:
            if end > len(self.buffer):
                self.buffer.extend(bytes(end - len(self.buffer)))
            self.length = end
        self.buffer[position:end] = data
        if self.mapped is not None:
            self.mapped[:] = self.buffer
        self.take_room(position, end)
        self.changes.append(Change(number, position, data))
        self.frozen = None

    def take_room(self, position: int, end: int) -> None:
        first = position // BLOCK
        if end <= (first + 1) * BLOCK:
            self.blocks.add(first)
        else:
            self.blocks.update(range(first, -(-end // BLOCK)))

    def room(self, position: int, end: int) -> int:
        """The end of a write to a full disk: the first block that would have to be allocated."""
        for block in range(position // BLOCK, -(-end // BLOCK)):
            if block not in self.blocks and block not in self.reserved:
                return max(position, block * BLOCK)
        return end

    # mappings ---------------------------------------------------------------------------------

    def map(self) -> None:
        """Start to watch for writes through a mapping."""
        self.mappings += 1
        if self.mapped is None:
            self.mapped = bytearray(self.buffer)

    def unmap(self) -> bool:
        """Remove a mapping; returns whether it was the last one."""
        self.mappings -= 1
        if self.mappings <= 0:
            self.mapped = None
            self.mappings = 0
        return self.mapped is None

    def gather(self, number: Callable[[], int], now: float) -> None:
        """Record writes through the mapping since the last call as changes."""
        mapped, buffer = self.mapped, self.buffer
        if mapped is None or mapped == buffer:
            return
        for at in range(0, self.length, SECTOR):
            piece = bytes(memoryview(buffer)[at : min(at + SECTOR, self.length)])
            if piece != mapped[at : at + SECTOR]:
                self.changes.append(Change(number(), at, piece))
                self.blocks.add(at // BLOCK)
        mapped[:] = buffer
        self.modified = now
        self.frozen = None

    # content after a power cut ----------------------------------------------------------------

    def reach_platter(self, upto: int) -> None:
        """An fsync has written all changes up to a number to the disk."""
        for change in self._take(upto):
            apply(self.platter, change)

    def forget(self, upto: int, keeps: Keeps) -> None:
        """An fsync has failed: data that is not on the disk by then is lost."""
        self.platter = settled(self.platter, self._take(upto), keeps)

    def _take(self, upto: int) -> list[Change]:
        taken = [change for change in self.changes if change.number <= upto]
        self.changes = [change for change in self.changes if change.number > upto]
        self.frozen = None
        return taken

    def lose_power(self, keeps: Keeps) -> None:
        """Become what the power cut leaves."""
        if self.changes or self.length != len(self.platter):
            self.platter = settled(self.platter, self.changes, keeps)
        self.changes = []
        self._become(self.platter)
        self.blocks = _blocks(self.platter)
        self.reserved = set()
        self.frozen = None

    def _become(self, content: bytes | bytearray) -> None:
        self.buffer = Buffer(content)
        self.length = len(content)
        self.mapped = None
        self.mappings = 0
        self.lock = None

    # a copy -----------------------------------------------------------------------------------

    def freeze(self) -> Frozen:
        if self.frozen is None:
            self.frozen = Frozen(self)
        return self.frozen

    @staticmethod
    def thaw(number: int, frozen: Frozen) -> "Inode":
        mode = frozen.mode
        inode = Inode(number, is_folder=stat.S_ISDIR(mode), mode=mode, now=frozen.modified)
        inode._become(frozen.content)
        inode.platter = bytearray(frozen.platter)
        inode.changes = list(frozen.changes)
        inode.blocks = set(frozen.blocks)
        inode.reserved = set(frozen.reserved)
        inode.frozen = frozen
        return inode


def apply(content: bytearray, change: Change) -> None:
    if change.data is None:
        del content[change.position :]
        content.extend(bytes(change.position - len(content)))
        return
    end = change.position + len(change.data)
    content.extend(bytes(max(0, end - len(content))))
    content[change.position : end] = change.data


def settled(platter: bytes | bytearray, changes: list[Change], keeps: Keeps) -> bytearray:
    """The content of a file on the disk."""
    kept: list[list[int]] = []  # sectors by change
    last = -1
    for index, change in enumerate(changes):
        sectors = [-1] if change.data is None else change.sectors()
        kept.append([at for at in sectors if keeps(change, at)])
        if kept[-1]:
            last = index
    memory, content = bytearray(platter), bytearray(platter)
    for index, change in enumerate(changes[: last + 1]):
        apply(memory, change)
        if change.data is None:
            apply(content, change)
            continue
        for at in kept[index]:
            stop = min(at + SECTOR, len(memory))
            content.extend(bytes(max(0, stop - len(content))))
            content[at:stop] = memory[at:stop]
    return content


def _blocks(content: bytes | bytearray) -> set[int]:
    return {at // BLOCK for at in range(0, len(content), BLOCK) if any(content[at : at + BLOCK])}
