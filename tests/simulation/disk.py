"""A disk that forgets: what was not synced survives a power cut or not, as chance has it.

A file is an inode. It has the bytes that everybody reads, and behind them what is on the platter:
the content of the last fsync, and since then a list of changes, each of which may have got there,
sector by sector, in any order. Names are likewise: each new name, removal and renaming survives by
itself until the folder was fsynced, or, on a disk that keeps a journal, in the order of events.

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

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

ROOT = "/sim/"
SECTOR = 512  # bytes that a disk writes as a whole
_CAPACITY = 1 << 30
_BLOCK = 4096

Keeps = Callable[[object], bool]  # whether a change survives a power cut


def error(number: int, path: object = None) -> OSError:
    text = os.strerror(number)
    return OSError(number, text) if path is None else OSError(number, text, str(path))


@dataclass
class Change:
    """A write of bytes at a position, or, with no bytes, a new length."""

    position: int
    data: bytes | None = None


class Buffer(bytearray):
    """The bytes of a file. As a mapping that is written to it can be closed, too."""

    def close(self) -> None:
        pass


class Inode:
    """A file or a folder."""

    def __init__(self, number: int, *, is_folder: bool, mode: int, now: float) -> None:
        self.number = number
        self.is_folder = is_folder
        self.mode = mode
        self.modified = now
        self.buffer = Buffer()  # what is read; may be longer than the file
        self.length = 0
        self.names: dict[str, Inode] = {}  # of a folder
        self.platter = bytearray()  # what the last fsync left on the disk
        self.changes: list[Change] = []  # since then
        self.is_mapped = False  # to be written, behind our back
        self.lock: Process | None = None

    def set_length(self, length: int) -> None:
        if length < self.length:
            self.buffer[length : self.length] = bytes(self.length - length)
        elif length > len(self.buffer):
            self.buffer.extend(bytes(length - len(self.buffer)))  # BufferError under a mapping
        self.length = length

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        if end > self.length:
            self.set_length(end)
        self.buffer[position:end] = data

    def content(self) -> bytes:
        return bytes(memoryview(self.buffer)[: self.length])

    def reach_platter(self, changes: list[Change], content: bytes | None) -> None:
        """So many of the first changes are on the disk; of what is mapped, this content."""
        for change in changes:
            _apply(self.platter, change)
        del self.changes[: len(changes)]
        if content is not None:
            self.platter[:] = content

    def is_clean(self) -> bool:
        return not self.changes and not (self.is_mapped and self.platter != self.content())


@dataclass
class Renaming:
    """A change of names: in ``folder`` a name goes, in ``to`` one comes, or both."""

    folder: Inode | None
    name: str
    to: Inode | None
    new_name: str
    inode: Inode


@dataclass
class Open:
    """An open file."""

    inode: Inode
    process: "Process | None"
    path: str
    offset: int = 0


@dataclass
class Faults:
    """What the disk does wrong from now on."""

    fails: Callable[[str, str], int] = lambda name, path: 0  # errno of a call, 0 for none
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
        self.log: list[tuple[str, str]] | None = None  # of operations, where somebody wants it
        self.has_journal = self.random.random() < 0.5
        self._inodes = count(1)
        self.root = self._new(is_folder=True, mode=0o755)
        self._names: list[Renaming] = []  # since folders were synced
        self._durable: dict[Inode, dict[str, Inode]] = {self.root: {}}

    def _new(self, *, is_folder: bool, mode: int) -> Inode:
        kind = stat.S_IFDIR if is_folder else stat.S_IFREG
        return Inode(next(self._inodes), is_folder=is_folder, mode=kind | mode, now=self.world.now)

    # what a test asks -------------------------------------------------------------------------

    def used(self) -> int:
        return sum(len(inode.content().rstrip(b"\0")) for inode in self._all(self.root))

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
        inode.buffer[position] ^= 1 << bit
        if position < len(inode.platter):
            inode.platter[position] ^= 1 << bit

    # a power cut ------------------------------------------------------------------------------

    def unsynced(self) -> list[Change | Renaming | Inode]:
        """What a power cut has to decide about, in order; an inode stands for its mapping."""
        found: list[Change | Renaming | Inode] = list(self._names)
        for inode in self._ever():
            found += inode.changes
            if inode.is_mapped and not inode.is_clean():
                found.append(inode)
        return found

    def _ever(self) -> list[Inode]:
        """All files that have a name, or had when folders were synced."""
        seen: dict[Inode, None] = {}
        left = [self.root, *self._durable]
        while left:
            inode = left.pop()
            if inode in seen:
                continue
            seen[inode] = None
            left += inode.names.values()
            left += self._durable.get(inode, {}).values()
        return [inode for inode in seen if not inode.is_folder]

    def lose_power(self, keeps: Keeps | None = None) -> None:
        """What was not synced is there or not: by chance, or as ``keeps`` says of each.

        Chance decides of each sector of a write by itself.
        """
        chance = self.random.choice((0.0, 0.1, 0.5, 0.9, 1.0))

        def by_chance(_: object) -> bool:
            return self.random.random() < chance

        for inode in self._ever():
            self._settle(inode, keeps, by_chance)
        self._settle_names(keeps, by_chance)
        self.close_all_of(None)

    def _settle(
        self,
        inode: Inode,
        keeps: Callable[[object], bool] | None,
        by_chance: Callable[[object], bool],
    ) -> None:
        if inode.is_clean():
            return
        content = bytearray(inode.platter)
        for change in inode.changes:
            if change.data is None:
                if (keeps or by_chance)(change):
                    del content[change.position :]
                    content.extend(bytes(change.position - len(content)))
                continue
            if keeps is not None and not keeps(change):
                continue
            end = change.position + len(change.data)
            at = change.position
            while at < end:
                stop = min(at - at % SECTOR + SECTOR, end)
                if keeps is not None or by_chance(change):
                    content.extend(bytes(max(0, stop - len(content))))
                    content[at:stop] = change.data[at - change.position : stop - change.position]
                at = stop
        if inode.is_mapped:
            now = inode.content()
            content.extend(bytes(max(0, len(now) - len(content))))
            whole = keeps is not None and keeps(inode)
            for at in range(0, len(now), SECTOR):
                if now[at : at + SECTOR] != content[at : at + SECTOR] and (
                    whole if keeps is not None else by_chance(inode)
                ):
                    content[at : at + SECTOR] = now[at : at + SECTOR]
        inode.buffer = Buffer(content)
        inode.length = len(content)
        inode.is_mapped = False
        inode.platter = content
        inode.changes.clear()

    def _settle_names(self, keeps: Keeps | None, by_chance: Keeps) -> None:
        names = {folder: dict(inside) for folder, inside in self._durable.items()}
        in_order = keeps is None and self.has_journal
        upto = self.random.randint(0, len(self._names)) if in_order else 0
        for number, change in enumerate(self._names):
            if number >= upto if in_order else not (keeps or by_chance)(change):
                continue
            if (
                change.folder is not None
                and names.get(change.folder, {}).get(change.name) is change.inode
            ):
                del names[change.folder][change.name]
            if change.to is not None:
                names.setdefault(change.to, {})[change.new_name] = change.inode
        self._names.clear()
        self._durable.clear()
        self._place(self.root, names)

    def _place(self, folder: Inode, names: dict[Inode, dict[str, Inode]]) -> None:
        folder.names = dict(names.get(folder, {}))
        self._durable[folder] = dict(folder.names)
        for inode in folder.names.values():
            inode.lock = None
            if inode.is_folder:
                self._place(inode, names)

    def open_boot_id(self, boot: int) -> int:
        """What the kernel shows as a file: another after each boot."""
        inode = self._new(is_folder=False, mode=0o444)
        inode.write(0, f"boot {boot} of {self.name}\n".encode())
        return self.descriptors.add(self, Open(inode, self.world.current, "boot_id"))

    def close_all_of(self, process: "Process | None") -> None:
        """The kernel closes what a process, or everybody, had open."""
        table = self.descriptors.open
        for number, (disk, file) in list(table.items()):
            if disk is self and (process is None or file.process is process):
                del table[number]
                if file.inode.lock is file.process:
                    file.inode.lock = None

    # system calls -----------------------------------------------------------------------------

    def _ask(self, name: str, path: str) -> None:
        """Before each call: it may fail, or be the last that its process makes."""
        self.operations += 1
        if self.log is not None:
            self.log.append((name, path))
        process = self.world.current
        if process is not None and process.operations_left:
            process.operations_left -= 1
            if not process.operations_left:
                self.world.tell(process.name, f"at {name} {path}:")
                process.on_last_operation()
        number = self.faults.fails(name, path)
        if number:
            self.world.injected(f"{name}: {errno.errorcode[number]}")
            self.world.tell(self.name, f"{name} {path}: {errno.errorcode[number]}")
            raise error(number, path)

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
        self._names.append(Renaming(folder, name, to, new_name, inode))

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
        if inode.is_folder and flags & (os.O_WRONLY | os.O_RDWR):
            raise error(errno.EISDIR, path)
        if flags & os.O_DIRECTORY and not inode.is_folder:
            raise error(errno.ENOTDIR, path)
        if flags & os.O_TRUNC and inode.length:
            inode.set_length(0)
            inode.changes.append(Change(0))
        return self.descriptors.add(self, Open(inode, self.world.current, path))

    def fsync(self, file: Open, name: str) -> None:
        """Takes its time; what is written meanwhile is not part of it.

        When it fails, the kernel forgets what it could not write: readers see it until the power
        goes, and no later fsync has it.
        """
        inode, process = file.inode, self.world.current
        changes = list(inode.changes)
        content = inode.content() if inode.is_mapped else None
        if process is not None:
            process.block(self.random.uniform(*self.faults.sync_seconds))
        try:
            self._ask(name, file.path)
        except OSError:
            del inode.changes[: len(changes)]
            raise
        if inode.is_folder:
            self._sync_folder(inode)
        else:
            inode.reach_platter(changes, content)

    def _sync_folder(self, folder: Inode) -> None:
        left = []
        for change in self._names:
            if change.folder is not folder and change.to is not folder:
                left.append(change)
                continue
            if change.folder is not None:
                inside = self._durable.setdefault(change.folder, {})
                if inside.get(change.name) is change.inode:
                    del inside[change.name]
            if change.to is not None:
                self._durable.setdefault(change.to, {})[change.new_name] = change.inode
        self._names = left
        self._durable[folder] = dict(folder.names)

    def pwrite(self, file: Open, data: Any, position: int) -> int:
        self._ask("pwrite", file.path)
        raw = bytes(data)
        if self.faults.is_full and position + len(raw) > file.inode.length:
            self.world.injected("full disk")
            raise error(errno.ENOSPC, file.path)
        if (
            len(raw) > 1
            and self.faults.writes_short
            and self.random.random() < self.faults.writes_short
        ):
            raw = raw[: self.random.randint(1, len(raw) - 1)]
            self.world.injected("short write")
        file.inode.write(position, raw)
        file.inode.modified = self.world.now
        file.inode.changes.append(Change(position, raw))
        return len(raw)

    def pread(self, file: Open, size: int, position: int) -> bytes:
        self._ask("pread", file.path)
        inode = file.inode
        return bytes(memoryview(inode.buffer)[position : min(position + size, inode.length)])

    def ftruncate(self, file: Open, length: int) -> None:
        self._ask("ftruncate", file.path)
        if length != file.inode.length:
            file.inode.set_length(length)
            file.inode.changes.append(Change(length))
        file.inode.modified = self.world.now

    def allocate(self, file: Open, position: int, length: int) -> None:
        self._ask("posix_fallocate", file.path)
        if self.faults.is_full:
            self.world.injected("full disk")
            raise error(errno.ENOSPC, file.path)
        if position + length > file.inode.length:
            self.ftruncate(file, position + length)

    def seek(self, file: Open, position: int, whence: int) -> int:
        inode = file.inode
        if whence == os.SEEK_DATA:
            if position >= inode.length:
                raise error(errno.ENXIO)
            rest = bytes(memoryview(inode.buffer)[position : inode.length])
            skipped = len(rest) - len(rest.lstrip(b"\0"))
            if skipped == len(rest):
                raise error(errno.ENXIO)
            at = position + skipped
            return max(position, at - at % _BLOCK)
        if whence == os.SEEK_HOLE:
            at = position
            while at < inode.length and any(inode.buffer[at : min(at + _BLOCK, inode.length)]):
                at += _BLOCK - at % _BLOCK
            return min(at, inode.length)
        file.offset = position
        return position

    def send(self, target: Open, source: Open, position: int, size: int) -> int:
        data = self.pread(source, size, position)
        written = self.pwrite(target, data, target.offset)
        target.offset += written
        return written

    def map_to_read(self, file: Open, size: int) -> Any:
        self._ask("mmap", file.path)
        return memoryview(file.inode.buffer)[:size].toreadonly()

    def map_to_write(self, file: Open, size: int) -> Any:
        self._ask("mmap", file.path)
        inode = file.inode
        inode.is_mapped = True
        return inode.buffer

    def status(self, inode: Inode) -> Any:
        return SimpleNamespace(
            st_mode=inode.mode, st_size=inode.length, st_mtime=inode.modified,
            st_mtime_ns=int(inode.modified * 1e9), st_ino=inode.number, st_dev=1,
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
        if name in folder.names:
            raise error(errno.EEXIST, new)
        folder.names[name] = inode
        self._rename(None, "", folder, name, inode)

    def replace(self, path: str, new: str) -> None:
        self._ask("rename", path)
        inode = self._find(path)
        folder, name = self._parent(path)
        to, new_name = self._parent(new)
        if to.names.get(new_name) is inode:
            return  # two names of one file: POSIX leaves both
        del folder.names[name]
        to.names[new_name] = inode
        self._rename(folder, name, to, new_name, inode)

    def room(self) -> Any:
        used = _CAPACITY if self.faults.is_full else min(self.used(), _CAPACITY)
        free = (_CAPACITY - used) // _BLOCK
        return SimpleNamespace(
            f_blocks=_CAPACITY // _BLOCK, f_bfree=free, f_bavail=free, f_frsize=_BLOCK
        )


def _apply(content: bytearray, change: Change) -> None:
    if change.data is None:
        del content[change.position :]
        content.extend(bytes(change.position - len(content)))
        return
    end = change.position + len(change.data)
    content.extend(bytes(max(0, end - len(content))))
    content[change.position : end] = change.data
