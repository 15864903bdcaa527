"""A copy of a simulated disk at one moment, cheap if little has changed since the previous one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.disk import Descriptors, Disk, Renaming
from tests.simulation.inode import Frozen, Inode

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(frozen=True)
class _Name:
    """A Renaming, with numbers for inodes; 0 for no folder."""

    number: int
    folder: int
    name: str
    to: int
    new_name: str
    inode: int


_Folders = tuple[tuple[int, tuple[tuple[str, int], ...]], ...]


@dataclass(frozen=True)
class Image:
    """The content of a disk, synced or not. Inodes are identified by their numbers."""

    name: str
    has_journal: bool
    root: int
    files: tuple[tuple[int, Frozen], ...]  # and folders
    folders: _Folders
    durable: _Folders
    names: tuple[_Name, ...]

    @classmethod
    def of(cls, disk: Disk) -> "Image":
        disk.gather()
        inodes: dict[Inode, None] = {}
        left = [disk.root, *disk.durable, *(renaming.inode for renaming in disk.names)]
        while left:
            inode = left.pop()
            if inode not in inodes:
                inodes[inode] = None
                left += inode.names.values()
                left += disk.durable.get(inode, {}).values()
        names = tuple(
            _Name(
                one.number,
                one.folder.number if one.folder else 0,
                one.name,
                one.to.number if one.to else 0,
                one.new_name,
                one.inode.number,
            )
            for one in disk.names
        )
        return cls(
            disk.name,
            disk.has_journal,
            disk.root.number,
            tuple((inode.number, inode.freeze()) for inode in inodes),
            _numbered({inode: inode.names for inode in inodes if inode.is_folder}),
            _numbered(disk.durable),
            names,
        )

    def disk(self, world: "World", descriptors: Descriptors) -> Disk:
        """An equal disk with no open files."""
        disk = Disk(world, self.name, descriptors)
        disk.has_journal = self.has_journal
        inodes = {number: Inode.thaw(number, frozen) for number, frozen in self.files}
        disk.root = inodes[self.root]
        for number, names in self.folders:
            inodes[number].names = {name: inodes[other] for name, other in names}
        disk.durable = {
            inodes[number]: {name: inodes[other] for name, other in names}
            for number, names in self.durable
        }
        disk.names = [
            Renaming(
                one.number,
                inodes.get(one.folder),
                one.name,
                inodes.get(one.to),
                one.new_name,
                inodes[one.inode],
            )
            for one in self.names
        ]
        changes = [change.number for _, frozen in self.files for change in frozen.changes]
        last = max([0, *changes, *(one.number for one in self.names)])
        disk.number_from(max(inodes) + 1, last)
        return disk


def _numbered(folders: dict[Inode, dict[str, Inode]]) -> _Folders:
    return tuple(
        (folder.number, tuple((name, inode.number) for name, inode in names.items()))
        for folder, names in folders.items()
    )
