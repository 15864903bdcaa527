"""A disk that forgets: what was not synced survives a power cut or not, as chance has it.

What a file keeps inode.py tells. Names are likewise: each new name, removal and renaming survives
by itself until the folder was fsynced, or, on a disk that keeps a journal, in the order of events,
with the lengths of files.

Only paths below ROOT are simulated: /sim/MACHINE/...; others go to the system.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.inode import BLOCK, Change, Inode, Keeps
from tests.simulation.world import EPOCH, START

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

ROOT = "/sim/"
_CAPACITY = 1 << 30


def error(number: int, path: object = None) -> OSError:
    text = os.strerror(number)
    return OSError(number, text) if path is None else OSError(number, text, str(path))


@dataclass
class Renaming:
    """A change of names: in ``folder`` a name goes, in ``to`` one comes, or both."""

    number: int  # in the order of all changes of a disk
    folder: Inode | None
    name: str
    to: Inode | None
    new_name: str
    inode: Inode


class Open:
    """An open file."""

    __slots__ = ("flags", "inode", "offset", "path", "process")

    def __init__(self, inode: Inode, process: "Process | None", path: str, flags: int) -> None:
        self.inode = inode
        self.process = process
        self.path = path
        self.flags = flags
        self.offset = 0


@dataclass
class Faults:
    """What the disk does wrong from now on."""

    fails: Callable[[str, str], int] | None = None  # errno of a call, 0 for none
    is_full: bool = False
    sync_seconds: tuple[float, float] = (0.000_2, 0.004)
    writes_short: float = 0.0  # probability


class Descriptors:
    """The open files of all simulated machines, by number."""

    def __init__(self) -> None:
        self._numbers = count(1 << 20)  # none that the system gives
        self.open: dict[int, tuple[Disk, Open]] = {}

    def add(self, disk: "Disk", file: Open) -> int:
        number = next(self._numbers)
        self.open[number] = disk, file
        return number


class Disk:
    """The disk of one machine."""

    def __init__(self, world: "World", name: str, descriptors: Descriptors) -> None:
        self.world = world
        self.name = name
        self.descriptors = descriptors
        self.random = world.random
        self.faults = Faults()
        self.operations = 0
        self.watch: Callable[[str, str], None] | None = None  # is told before each operation
        self.has_journal = self.random.random() < 0.5
        self.mapped: dict[Inode, Process | None] = {}  # to be written
        self._inodes = count(1)
        self.version = 0  # of all that is on it: the number of the last change
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
        """Go on counting behind what a copy brought."""
        self._inodes, self.version = count(inode), change

    # what a test asks -------------------------------------------------------------------------

    def used(self) -> int:
        """Bytes, as a file system counts them."""
        inodes = dict.fromkeys(self._all(self.root))
        return BLOCK * sum(len(inode.blocks | inode.reserved) for inode in inodes)

    def _all(self, folder: Inode) -> Iterator[Inode]:
        for inode in folder.names.values():
            yield inode
            if inode.is_folder:
                yield from self._all(inode)

    def files(self, folder: Inode | None = None, path: str = "") -> Iterator[tuple[str, Inode]]:
        """Paths, relative to the root, and files."""
        for name, inode in sorted((folder or self.root).names.items()):
            if inode.is_folder:
                yield from self.files(inode, f"{path}{name}/")
            else:
                yield path + name, inode

    def rot(self, inode: Inode, position: int, bit: int) -> None:
        """Have a bit change where it lies."""
        self.gather()
        inode.buffer[position] ^= 1 << bit
        if inode.mapped is not None:
            inode.mapped[position] ^= 1 << bit
        if position < len(inode.platter):
            inode.platter[position] ^= 1 << bit
        inode.frozen = None

    # a power cut ------------------------------------------------------------------------------

    def gather(self) -> None:
        """Note what was written to mappings."""
        for inode in self.mapped:
            inode.gather(self._next, self.world.now)

    def unsynced(self) -> list[tuple[Change | Renaming, int, Inode]]:
        """What a power cut has to decide about, in the order of events.

        Each sector of a write by itself; where it begins stands beside it, -1 for all else.
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
        """All files that have a name, or may have one behind a power cut."""
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
        """What was not synced is there or not: by chance, or as ``keeps`` says of each."""
        self.gather()
        keeps = keeps or self._by_chance()
        for inode in self.ever():
            inode.lose_power(keeps)
        self._settle_names(keeps)
        self.mapped.clear()
        self.close_all_of(None)

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

    def open_boot_id(self, boot: int) -> int:
        """What the kernel shows as a file: another after each boot."""
        inode = self._new(is_folder=False, mode=0o444)
        inode.write(0, f"boot {boot} of {self.name}\n".encode(), 0)
        return self.descriptors.add(self, Open(inode, self.world.current, "boot_id", os.O_RDONLY))

    def close_all_of(self, process: "Process | None") -> None:
        """The kernel closes what a process, or everybody, had open."""
        table = self.descriptors.open
        for number, (disk, file) in list(table.items()):
            if disk is self and (process is None or file.process is process):
                del table[number]
                if file.inode.lock is file.process:
                    file.inode.lock = None
        for inode, owner in list(self.mapped.items()):
            if process is None or owner is process:
                inode.gather(self._next, self.world.now)
                while not inode.unmap():
                    pass
                del self.mapped[inode]

    # system calls -----------------------------------------------------------------------------

    def _ask(self, name: str, path: str) -> None:
        """Before each call: it may fail, or be the last that its process makes."""
        self.operations += 1
        if self.mapped:
            self.gather()
        if self.watch is not None:
            self.watch(name, path)
        process = self.world.current
        if process is not None and process.operations_left:
            process.operations_left -= 1
            if not process.operations_left:
                self.world.tell(process.name, f"at {name} {path}:")
                process.on_last_operation()
        if self.faults.fails is not None:
            number = self.faults.fails(name, path)
            if number:
                self.world.injected(f"{name}: {errno.errorcode[number]}")
                self.world.tell(self.name, f"{name} {path}: {errno.errorcode[number]}")
                raise error(number, path)

    def _no_room(self, path: str) -> OSError:
        self.world.injected("no space: ENOSPC")
        return error(errno.ENOSPC, path)

    def _find(self, path: str) -> Inode:
        inode = self.root
        for part in path.split("/"):
            if not part or part == ".":
                continue
            if not inode.is_folder:
                raise error(errno.ENOTDIR, path)
            found = inode.names.get(part)
            if found is None:
                raise error(errno.ENOENT, path)
            inode = found
        return inode

    def _parent(self, path: str) -> tuple[Inode, str]:
        before, _, name = path.rstrip("/").rpartition("/")
        folder = self._find(before)
        if not folder.is_folder:
            raise error(errno.ENOTDIR, path)
        return folder, name

    def _rename(
        self, folder: Inode | None, name: str, to: Inode | None, new_name: str, inode: Inode
    ) -> None:
        number = self._next()
        self.names.append(Renaming(number, folder, name, to, new_name, inode))

    def open(self, path: str, flags: int, mode: int) -> int:
        self._ask("open", path)
        try:
            inode = self._find(path)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise error(errno.EEXIST, path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            folder, name = self._parent(path)
            inode = folder.names[name] = self._new(is_folder=False, mode=mode & 0o777)
            self._rename(None, "", folder, name, inode)
        if inode.is_folder and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise error(errno.EISDIR, path)
        if flags & os.O_DIRECTORY and not inode.is_folder:
            raise error(errno.ENOTDIR, path)
        if flags & os.O_TRUNC and inode.length:
            inode.set_length(0, self._next())
        return self.descriptors.add(self, Open(inode, self.world.current, path, flags))

    def fsync(self, file: Open, name: str) -> None:
        """Takes its time; what is written meanwhile is not part of it.

        When it fails, the kernel forgets what it could not write: readers see it until the power
        goes, and no later fsync has it.
        """
        inode, process = file.inode, self.world.current
        self.gather()
        upto = self._next()
        if process is not None:
            process.block(self.random.uniform(*self.faults.sync_seconds))
        try:
            self._ask(name, file.path)
        except OSError:
            inode.forget(upto, self._by_chance())
            raise
        finally:
            self.version += 1
        if inode.is_folder:
            self._sync_folder(inode, upto)
        else:
            inode.reach_platter(upto)

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

    def pwrite(self, file: Open, data: Any, position: int) -> int:
        self._ask("pwrite", file.path)
        inode, faults = file.inode, self.faults
        if position < 0:
            raise error(errno.EINVAL)
        if not file.flags & (os.O_WRONLY | os.O_RDWR):
            raise error(errno.EBADF)
        raw = bytes(data)
        if not raw:
            return 0
        if faults.is_full:
            room = inode.room(position, position + len(raw)) - position
            if room <= 0:
                raise self._no_room(file.path)
            raw = raw[:room]
        if faults.writes_short and len(raw) > 1 and self.random.random() < faults.writes_short:
            raw = raw[: self.random.randint(1, len(raw) - 1)]
            self.world.injected("short write")
        inode.write(position, raw, self._next())
        inode.modified = self.world.now
        return len(raw)

    def pread(self, file: Open, size: int, position: int) -> bytes:
        self._ask("pread", file.path)
        inode = file.inode
        if position < 0:
            raise error(errno.EINVAL)
        if file.flags & os.O_WRONLY:
            raise error(errno.EBADF)
        if inode.is_folder:
            raise error(errno.EISDIR)
        return bytes(memoryview(inode.buffer)[position : min(position + size, inode.length)])

    def ftruncate(self, file: Open, length: int) -> None:
        self._ask("ftruncate", file.path)
        if length < 0 or not file.flags & (os.O_WRONLY | os.O_RDWR):
            raise error(errno.EINVAL)
        if length != file.inode.length:
            file.inode.set_length(length, self._next())
        file.inode.modified = self.world.now

    def allocate(self, file: Open, position: int, length: int) -> None:
        self._ask("posix_fallocate", file.path)
        inode, end = file.inode, position + length
        if position < 0 or length <= 0:
            raise error(errno.EINVAL)
        if not file.flags & (os.O_WRONLY | os.O_RDWR):
            raise error(errno.EBADF)
        if self.faults.is_full and inode.room(position, end) < end:
            raise self._no_room(file.path)
        if end > inode.length:
            inode.set_length(end, self._next())
        inode.reserved.update(range(position // BLOCK, -(-end // BLOCK)))
        inode.frozen = None
        self.version += 1

    def change_mode(self, file: Open, mode: int) -> None:
        inode = file.inode
        inode.mode = stat.S_IFMT(inode.mode) | mode
        inode.frozen = None
        self.version += 1

    def seek(self, file: Open, position: int, whence: int) -> int:
        inode = file.inode
        if whence in (os.SEEK_DATA, os.SEEK_HOLE):
            at = self._seek(inode, position, whence)
        else:
            start = {os.SEEK_SET: 0, os.SEEK_CUR: file.offset, os.SEEK_END: inode.length}
            at = start[whence] + position
            if at < 0:
                raise error(errno.EINVAL)
        file.offset = at
        return at

    def _seek(self, inode: Inode, position: int, whence: int) -> int:
        if self.mapped:
            self.gather()
        if not 0 <= position < inode.length:
            raise error(errno.ENXIO)
        wants_data = whence == os.SEEK_DATA
        first, end = position // BLOCK, -(-inode.length // BLOCK)
        for block in range(first, end):
            if (block in inode.blocks) is wants_data:
                return max(position, block * BLOCK)
        if wants_data:
            raise error(errno.ENXIO)
        return inode.length

    def send(self, target: Open, source: Open, position: int, size: int) -> int:
        data = self.pread(source, size, position)
        written = self.pwrite(target, data, target.offset)
        target.offset += written
        return written

    def map_to_read(self, file: Open, size: int) -> Any:
        self._ask("mmap", file.path)
        if size > file.inode.length:
            raise ValueError("mmap length is greater than file size")
        return memoryview(file.inode.buffer)[:size].toreadonly()

    def map_to_write(self, file: Open, size: int) -> Any:
        self._ask("mmap", file.path)
        inode = file.inode
        if size > inode.length:
            raise ValueError("mmap length is greater than file size")

        def closed() -> None:
            inode.gather(self._next, self.world.now)
            if inode in self.mapped and inode.unmap():
                del self.mapped[inode]

        inode.map()
        self.mapped[inode] = self.world.current
        inode.buffer.on_close = closed
        return inode.buffer

    def status(self, inode: Inode) -> Any:
        modified = EPOCH + inode.modified - START
        return SimpleNamespace(
            st_mode=inode.mode, st_size=inode.length, st_mtime=modified,
            st_mtime_ns=int(modified * 1e9), st_ino=inode.number, st_dev=1,
            st_uid=os.geteuid(), st_gid=os.getegid(),
        )  # fmt: skip

    def stat(self, path: str) -> Any:
        self._ask("stat", path)
        return self.status(self._find(path))

    def listdir(self, path: str) -> list[str]:
        self._ask("listdir", path)
        inode = self._find(path)
        if not inode.is_folder:
            raise error(errno.ENOTDIR, path)
        return sorted(inode.names)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._ask("mkdir", path)
        folder, name = self._parent(path)
        if not name or name in folder.names:
            raise error(errno.EEXIST, path)
        inode = folder.names[name] = self._new(is_folder=True, mode=mode)
        self._rename(None, "", folder, name, inode)

    def rmdir(self, path: str) -> None:
        self._ask("rmdir", path)
        folder, name = self._parent(path)
        inode = self._find(path)
        if not inode.is_folder:
            raise error(errno.ENOTDIR, path)
        if inode.names:
            raise error(errno.ENOTEMPTY, path)
        del folder.names[name]
        self._rename(folder, name, None, "", inode)

    def unlink(self, path: str) -> None:
        self._ask("unlink", path)
        folder, name = self._parent(path)
        inode = folder.names.get(name)
        if inode is None:
            raise error(errno.ENOENT, path)
        if inode.is_folder:
            raise error(errno.EISDIR, path)
        del folder.names[name]
        self._rename(folder, name, None, "", inode)

    def link(self, path: str, new: str) -> None:
        self._ask("link", path)
        inode = self._find(path)
        folder, name = self._parent(new)
        if not name or name in folder.names:
            raise error(errno.EEXIST, new)
        if inode.is_folder:
            raise error(errno.EPERM, path)
        folder.names[name] = inode
        self._rename(None, "", folder, name, inode)

    def replace(self, path: str, new: str) -> None:
        self._ask("rename", path)
        folder, name = self._parent(path)
        to, new_name = self._parent(new)
        inode = self._find(path)
        if inode.is_folder and f"{new}/".startswith(f"{path}/") and new != path:
            raise error(errno.EINVAL, path)
        if f"{path}/".startswith(f"{new}/") and new != path:
            raise error(errno.ENOTEMPTY, path)
        present = to.names.get(new_name)
        if present is inode:
            return  # two names of one file: POSIX leaves both
        if present is not None:
            if inode.is_folder and not present.is_folder:
                raise error(errno.ENOTDIR, path)
            if present.is_folder and not inode.is_folder:
                raise error(errno.EISDIR, path)
            if present.names:
                raise error(errno.ENOTEMPTY, path)
        del folder.names[name]
        to.names[new_name] = inode
        self._rename(folder, name, to, new_name, inode)

    def room(self) -> Any:
        used = _CAPACITY if self.faults.is_full else min(self.used(), _CAPACITY)
        free = (_CAPACITY - used) // BLOCK
        return SimpleNamespace(
            f_blocks=_CAPACITY // BLOCK, f_bfree=free, f_bavail=free, f_frsize=BLOCK
        )


def _rename_in(names: dict[Inode, dict[str, Inode]], change: Renaming) -> None:
    if change.folder is not None:
        inside = names.setdefault(change.folder, {})
        if inside.get(change.name) is change.inode:
            del inside[change.name]
    if change.to is not None:
        names.setdefault(change.to, {})[change.new_name] = change.inode
