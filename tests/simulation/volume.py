"""The content of a disk, and what a power cut leaves of it.

inode.py describes the content of a file. Each new name, removal and renaming survives by itself
until its folder was fsynced, or, on a disk with a journal, in the order of events, together with
the lengths of files.
"""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.simulation.inode import BLOCK, Change, Inode, Keeps

if TYPE_CHECKING:
    from tests.simulation.world import Process, World


@dataclass
class Renaming:
    """A change of names: a name is removed from ``folder``, one is added to ``to``, or both."""

    number: int  # in the order of all changes of a disk
    folder: Inode | None
    name: str
    to: Inode | None
    new_name: str
    inode: Inode


class Volume:
    """Files and folders by name, and the names that are on the platter."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.random = world.random
        self.has_journal = self.random.random() < 0.5
        self.mapped: dict[Inode, Process | None] = {}  # to be written
        self._inodes = count(1)
        self.version = 0  # the number of the last change
        self.root = self._new(is_folder=True, mode=0o755)
        self.names: list[Renaming] = []  # since folders were synced
        self.durable: dict[Inode, dict[str, Inode]] = {self.root: {}}

    def _new(self, *, is_folder: bool, mode: int) -> Inode:
        kind = stat.S_IFDIR if is_folder else stat.S_IFREG
        return Inode(next(self._inodes), is_folder=is_folder, mode=kind | mode, now=self.world.now)

    def _next(self) -> int:
        self.version += 1
        return self.version

    def number_from(self, inode: int, change: int) -> None:
        """Continue the numbering of a copy."""
        self._inodes, self.version = count(inode), change

    def used(self) -> int:
        """Bytes in use, as a file system counts them."""
        inodes = dict.fromkeys(self._all(self.root))
        return BLOCK * sum(len(inode.blocks | inode.reserved) for inode in inodes)

    def _all(self, folder: Inode) -> Iterator[Inode]:
        for inode in folder.names.values():
            yield inode
            if inode.is_folder:
                yield from self._all(inode)

    def files(self, folder: Inode | None = None, path: str = "") -> Iterator[tuple[str, Inode]]:
        """Paths relative to the root, and files."""
        for name, inode in sorted((folder or self.root).names.items()):
            if inode.is_folder:
                yield from self.files(inode, f"{path}{name}/")
            else:
                yield path + name, inode

    def rot(self, inode: Inode, position: int, bit: int) -> None:
        """Change a bit on the platter."""
        self.gather()
        inode.buffer[position] ^= 1 << bit
        if inode.mapped is not None:
            inode.mapped[position] ^= 1 << bit
        if position < len(inode.platter):
            inode.platter[position] ^= 1 << bit
        inode.frozen = None

    # names ------------------------------------------------------------------------------------

    def _rename(
        self, folder: Inode | None, name: str, to: Inode | None, new_name: str, inode: Inode
    ) -> None:
        number = self._next()
        self.names.append(Renaming(number, folder, name, to, new_name, inode))

    def _sync_folder(self, folder: Inode, upto: int) -> None:
        left = []
        for change in self.names:
            is_part = change.number <= upto and (change.folder is folder or change.to is folder)
            if is_part:
                _rename_in(self.durable, change)
            else:
                left.append(change)
        self.names = left
        self.durable.setdefault(folder, {})

    # power cuts -------------------------------------------------------------------------------

    def gather(self) -> None:
        """Record writes through mappings."""
        for inode in self.mapped:
            inode.gather(self._next, self.world.now)

    def unsynced(self) -> list[tuple[Change | Renaming, int, Inode]]:
        """The changes that a power cut decides about, in the order of events.

        Each sector of a write is separate, with its position; -1 for all other changes.
        """
        self.gather()
        found: list[tuple[Change | Renaming, int, Inode]] = []
        for renaming in self.names:
            found.append((renaming, -1, renaming.inode))
        for inode in self.ever():
            for change in inode.changes:
                sectors = [-1] if change.data is None else change.sectors()
                found += ((change, at, inode) for at in sectors)
        return sorted(found, key=lambda one: (one[0].number, one[1]))

    def ever(self) -> list[Inode]:
        """All files that have a name, or may have one after a power cut."""
        seen: dict[Inode, None] = {}
        left = [self.root, *self.durable, *(renaming.inode for renaming in self.names)]
        while left:
            inode = left.pop()
            if inode in seen:
                continue
            seen[inode] = None
            left += inode.names.values()
            left += self.durable.get(inode, {}).values()
        return [inode for inode in seen if not inode.is_folder]

    def lose_power(self, keeps: Keeps | None = None) -> None:
        """Keep or drop each unsynced change, at random or as ``keeps`` decides."""
        self.gather()
        keeps = keeps or self._by_chance()
        for inode in self.ever():
            inode.lose_power(keeps)
        self._settle_names(keeps)
        self.mapped.clear()

    def _by_chance(self) -> Keeps:
        random = self.random
        chance = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        committed = None
        if self.has_journal:
            order = [item.number for item, at, _ in self.unsynced() if at == -1]
            committed = random.choice([0, *order])

        def keeps(change: Any, at: int) -> bool:
            if committed is not None and at == -1:
                return bool(change.number <= committed)
            return random.random() < chance

        return keeps

    def _settle_names(self, keeps: Keeps) -> None:
        names = {folder: dict(inside) for folder, inside in self.durable.items()}
        for change in self.names:
            if keeps(change, -1):
                _rename_in(names, change)
        self.names.clear()
        self.durable.clear()
        self._place(self.root, names)

    def _place(self, folder: Inode, names: dict[Inode, dict[str, Inode]]) -> None:
        folder.names = dict(names.get(folder, {}))
        self.durable[folder] = dict(folder.names)
        for inode in folder.names.values():
            if inode.is_folder:
                self._place(inode, names)


def _rename_in(names: dict[Inode, dict[str, Inode]], change: Renaming) -> None:
    if change.folder is not None:
        inside = names.setdefault(change.folder, {})
        if inside.get(change.name) is change.inode:
            del inside[change.name]
    if change.to is not None:
        names.setdefault(change.to, {})[change.new_name] = change.inode
