"""An unreliable disk: unsynced data survives a power cut or not, at random.

volume.py has its content, and names.py the calls about names; here are those about open files. Only
paths below ROOT are simulated: /sim/MACHINE/...; others go to the system.
"""

import errno
import os
import stat
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.simulation.inode import BLOCK, Inode, Keeps
from tests.simulation.names import Faults as Faults
from tests.simulation.names import Named
from tests.simulation.names import error as error
from tests.simulation.volume import Renaming as Renaming

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

ROOT = "/sim/"


class Open:
    """An open file."""

    __slots__ = ("flags", "inode", "offset", "path", "process")

    def __init__(self, inode: Inode, process: "Process | None", path: str, flags: int) -> None:
        self.inode = inode
        self.process = process
        self.path = path
        self.flags = flags
        self.offset = 0


class Descriptors:
    """The open files of all simulated machines, by number."""

    def __init__(self) -> None:
        self._numbers = count(1 << 20)  # numbers that the system does not use
        self.open: dict[int, tuple[Disk, Open]] = {}

    def add(self, disk: "Disk", file: Open) -> int:
        number = next(self._numbers)
        self.open[number] = disk, file
        return number


class Disk(Named):
    """The disk of one machine."""

    def __init__(self, world: "World", name: str, descriptors: Descriptors) -> None:
        super().__init__(world, name)
        self.descriptors = descriptors

    def lose_power(self, keeps: Keeps | None = None) -> None:
        """Keep or drop each unsynced change, at random or as ``keeps`` decides."""
        super().lose_power(keeps)
        self.close_all_of(None)

    def open_boot_id(self, boot: int) -> int:
        """The kernel's file with the boot id: different after each boot."""
        inode = self._new(is_folder=False, mode=0o444)
        inode.write(0, f"boot {boot} of {self.name}\n".encode(), 0)
        return self.descriptors.add(self, Open(inode, self.world.current, "boot_id", os.O_RDONLY))

    def close_all_of(self, process: "Process | None") -> None:
        """Close everything that a process, or all processes, had open."""
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
        """Takes time; data written meanwhile is not part of it.

        If it fails, the kernel drops the unwritten data: readers see it until the power goes, and
        no later fsync writes it.
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
        self.reserve(file, position, length)

    def reserve(self, file: Open, position: int, length: int) -> None:
        inode, end = file.inode, position + length
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
