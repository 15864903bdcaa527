"""Power failures: of a folder, only fsynced data survives, and a random part of the rest.

The content of a file is on the disk once the file was fsynced; its name once its folder was.
Nothing else is, which is less than most file systems keep.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.recovery import recovery
from tests.daemons.broker.store.stores import as_of_a_kill

Inode = tuple[int, int]
_SECTOR = 512  # bytes that a disk writes all or not at all


@dataclass
class Machine:
    """A place for stores whose power may fail. Fsyncs are recorded from its creation on."""

    monkeypatch: pytest.MonkeyPatch
    folder: Path
    boots: int = 0
    _contents: dict[Inode, bytes] = field(default_factory=dict)
    _names: dict[Inode, dict[str, Inode]] = field(default_factory=dict)
    _kept_open: list[int] = field(default_factory=list)  # no inode number is used twice

    def __post_init__(self) -> None:
        self._record("fsync")
        self._record("fdatasync")
        self.boot()

    def _record(self, name: str) -> None:
        real = getattr(os, name)

        def synced(descriptor: int) -> None:
            real(descriptor)
            self._synced(descriptor)

        self.monkeypatch.setattr(files, name, synced)

    def boot(self) -> None:
        """Restart the machine: the kernel has another boot id then."""
        self.boots += 1
        path = self.folder / f"boot-{self.boots}"
        path.write_text(f"boot {self.boots}\n")
        self.monkeypatch.setattr(recovery, "BOOT_ID", path)

    def _synced(self, descriptor: int) -> None:
        path = f"/proc/self/fd/{descriptor}"
        inode = self._hold(path)
        if os.path.isdir(path):
            self._names[inode] = {
                name: self._hold(os.path.join(path, name)) for name in os.listdir(path)
            }
        else:
            self._contents[inode] = Path(path).read_bytes()

    def _hold(self, path: str) -> Inode:
        self._kept_open.append(os.open(path, os.O_PATH))
        status = os.fstat(self._kept_open[-1])
        return status.st_dev, status.st_ino

    def lose_power(
        self, root: Path, target: Path, is_kept: Callable[[], bool] = lambda: False
    ) -> Path:
        """Put the remains of ``root`` in ``target``, and boot.

        ``is_kept`` decides for each file and each name whether unsynced data survives.
        """
        target.mkdir()
        self._restore(root, self._hold(str(root)), target, is_kept)
        self._all_synced(target)
        self.boot()
        return target

    def _restore(
        self, now: Path | None, inode: Inode, target: Path, is_kept: Callable[[], bool]
    ) -> None:
        synced = self._names.get(inode, {})
        present = {} if now is None else {p.name: self._hold(str(p)) for p in now.iterdir()}
        for name in sorted(synced.keys() | present.keys()):
            path = None if now is None else now / name
            if synced.get(name) != present.get(name) and (path is None or not is_kept()):
                if name not in synced:
                    continue
                child, path = synced[name], None
            elif name in present:
                child = present[name]
            else:
                continue
            if child in self._names or (path is not None and path.is_dir()):
                (target / name).mkdir()
                self._restore(path, child, target / name, is_kept)
            else:
                old = self._contents.get(child, b"")
                new = old if path is None else path.read_bytes()
                (target / name).write_bytes(_mix(old, new, is_kept))

    def kill(self, root: Path, target: Path) -> Path:
        """Put in ``target`` what a kill -9 would leave of ``root``: everything, fsynced or not."""
        target.mkdir()
        old, new = self._hold(str(root)), self._hold(str(target))
        twins: dict[Inode, Inode] = {}
        for path in root.iterdir():
            was = self._hold(str(path))
            if path.is_dir():
                self.kill(path, target / path.name)
            else:
                shutil.copy(path, target / path.name)
                if path.name == layout.ABORT_FILE:
                    as_of_a_kill(target)
            twins[was] = self._hold(str(target / path.name))
            if was in self._contents:
                self._contents[twins[was]] = self._contents[was]
        if old in self._names:
            self._names[new] = {n: twins.get(i, i) for n, i in self._names[old].items()}
        return target

    def _all_synced(self, folder: Path) -> None:
        for path in folder.iterdir():
            if path.is_dir():
                self._all_synced(path)
            else:
                self._contents[self._hold(str(path))] = path.read_bytes()
        names = {path.name: self._hold(str(path)) for path in folder.iterdir()}
        self._names[self._hold(str(folder))] = names

    def close(self) -> None:
        for descriptor in self._kept_open:
            os.close(descriptor)


def _mix(old: bytes, new: bytes, is_kept: Callable[[], bool]) -> bytes:
    """A possible content of a file on the disk during a change: any of its sectors may be new."""
    if old == new:
        return old
    size = len(new) if is_kept() else len(old)
    sectors = []
    for at in range(0, size, _SECTOR):
        content = new if is_kept() else old
        sectors.append(content[at : at + _SECTOR].ljust(min(_SECTOR, size - at), b"\0"))
    return b"".join(sectors)
