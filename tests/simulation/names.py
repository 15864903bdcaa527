"""The calls of a simulated disk about names; each may fail, or be the last of its process."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.simulation.inode import BLOCK, Inode
from tests.simulation.volume import Volume
from tests.simulation.world import EPOCH, START, World

_CAPACITY = 1 << 30


def error(number: int, path: object = None) -> OSError:
    text = os.strerror(number)
    return OSError(number, text) if path is None else OSError(number, text, str(path))


@dataclass
class Faults:
    """The current faults of a disk."""

    fails: Callable[[str, str], int] | None = None  # errno of a call, 0 for none
    is_full: bool = False
    sync_seconds: tuple[float, float] = (0.000_2, 0.004)
    writes_short: float = 0.0  # probability


class Named(Volume):
    """A volume with files addressed by paths."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.faults = Faults()
        self.operations = 0
        self.watch: Callable[[str, str], None] | None = None  # called before each operation

    def _ask(self, name: str, path: str) -> None:
        """Called before each operation: it may fail, or be the last of its process."""
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
