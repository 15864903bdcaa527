"""Replaces the machine by a simulation. `install` must run before any other module of mq is
imported.

The functions here find their machine by the path, the descriptor or the running process; other
calls go to the system.
"""

# The replacements do not declare every parameter of the replaced functions.
# mypy: disable-error-code="arg-type, assignment, misc"

import os
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from greenlet import greenlet

from mq.client.machine import clock, database, files, random_ids, threads, usage
from tests.simulation.database import Connection
from tests.simulation.disk import ROOT, Descriptors, Disk, Open, error
from tests.simulation.world import EPOCH, START, Process, World

_BOOT_ID = "/proc/sys/kernel/random/boot_id"

world: World | None = None
disks: dict[str, Disk] = {}
descriptors = Descriptors()


def use(new: World | None) -> None:
    """Use this world from now on; None for none."""
    global world
    world = new
    disks.clear()
    descriptors.open.clear()


def make_disk(name: str) -> Disk:
    assert world is not None
    disk = disks[name] = Disk(world, name, descriptors)
    return disk


def _process() -> Process | None:
    return None if world is None else world.current


# clocks and chance ------------------------------------------------------------------------------

_real = {
    (module, name): getattr(module, name)
    for module, names in (
        (clock, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "thread_time")),
        (random_ids, ("randrange", "shuffle", "sample", "uniform", "random_bytes", "uuid4")),
    )
    for name in names
}


def _time() -> float:
    process = _process()
    if process is None or world is None:
        return float(_real[clock, "time"]())
    return EPOCH + world.now - START + process.machine.wall_offset


def _monotonic() -> float:
    return float(_real[clock, "monotonic"]()) if world is None else world.now


def _by_process(name: str) -> Callable[..., Any]:
    real = _real[random_ids, name]

    def call(*args: Any) -> Any:
        process = _process()
        return real(*args) if process is None else getattr(process.random, name)(*args)

    return call


def _random_bytes(size: int) -> bytes:
    process = _process()
    if process is None:
        return bytes(_real[random_ids, "random_bytes"](size))
    return process.random.randbytes(size)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(bytes=_random_bytes(16), version=4)


# files ------------------------------------------------------------------------------------------


def _place(path: Any) -> tuple[Disk, str] | None:
    """The disk and the path on it."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text.startswith(ROOT):
        return None
    name, _, rest = text.removeprefix(ROOT).partition("/")
    disk = disks.get(name)
    if disk is None:
        raise error(2, path)
    return disk, rest


def _on_path(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    real = getattr(files, name)

    def call(path: Any, *args: Any) -> Any:
        place = _place(path)
        return real(path, *args) if place is None else method(place[0], place[1], *args)

    return call


def _on_paths(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    real = getattr(files, name)

    def call(path: Any, other: Any) -> Any:
        place, second = _place(path), _place(other)
        if place is None or second is None:
            return real(path, other)
        if place[0] is not second[0]:
            raise error(18)  # EXDEV
        return method(place[0], place[1], second[1])

    return call


def _on_descriptor(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    real = getattr(files, name)

    def call(descriptor: int, *args: Any) -> Any:
        if descriptor < 1 << 20:
            if descriptor < 0:
                raise error(9)
            return real(descriptor, *args)
        disk, file = _opened(descriptor)
        return method(disk, file, *args)

    return call


def _open(path: Any, flags: int, mode: int = 0o777) -> int:
    place, process = _place(path), _process()
    if place is not None:
        return place[0].open(place[1], flags, mode)
    if process is not None and os.fspath(path) == _BOOT_ID:
        return process.machine.disk.open_boot_id(process.machine.boots)
    return os.open(path, flags, mode)


def _opened(descriptor: int) -> tuple[Disk, Open]:
    found = descriptors.open.get(descriptor)
    if found is None:
        raise error(9)
    return found


def _close(descriptor: int) -> None:
    if descriptor < 1 << 20:
        os.close(descriptor)
        return
    _, file = _opened(descriptor)
    del descriptors.open[descriptor]
    if file.inode.lock is not None and file.inode.lock is file.process:
        file.inode.lock = None


def _lock(disk: Disk, file: Open) -> None:
    holder = file.inode.lock
    if holder is not None and holder is not file.process and holder.is_alive:
        raise BlockingIOError(11, "locked")
    file.inode.lock = file.process


def _unlock(disk: Disk, file: Open) -> None:
    file.inode.lock = None


def _preadv(disk: Disk, file: Open, buffers: Any, position: int, flags: int = 0) -> int:
    total = 0
    for buffer in buffers:
        data = disk.pread(file, len(buffer), position + total)
        buffer[: len(data)] = data
        total += len(data)
    return total


def _sendfile(target: int, source: int, position: int, size: int) -> int:
    disk, to = _opened(target)
    return disk.send(to, _opened(source)[1], position, size)


class _Entries:
    """The used part of scandir's result."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._found = [_Entry(disk, path, name) for name in disk.listdir(path)]

    def __enter__(self) -> list["_Entry"]:
        return self._found

    def __exit__(self, *_: object) -> None:
        pass


class _Entry:
    def __init__(self, disk: Disk, path: str, name: str) -> None:
        self.name = name
        self._disk, self._path = disk, f"{path}/{name}"

    def is_dir(self) -> bool:
        return bool(files.is_folder(f"{ROOT}{self._disk.name}/{self._path}"))


_real_connect = database.connect


def _connect(path: Any) -> Any:
    return _real_connect(path) if _place(path) is None else Connection(path)


# threads ----------------------------------------------------------------------------------------


class SimulatedLock:
    """A lock between the greenlets of a process.

    A module's lock is a different one in each process, so that locks held by a dead process or in
    an earlier world do not count.
    """

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[Process, list[greenlet]] = WeakKeyDictionary()  # by holder

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> bool:
        process = _process()
        if process is not None:
            while process in self._waiting:
                process.wait_for(self._waiting[process])
            self._waiting[process] = []
        return True

    def release(self) -> None:
        process = _process()
        if process is not None:
            for thread in self._waiting.pop(process):
                process.wake(thread)


class SimulatedDiskThread(threads.DiskThread):
    """threads.DiskThread in greenlets."""

    def __init__(self, name: str) -> None:
        process = _process()
        assert process is not None
        self._process = process
        self._loop = process.loop
        self._waiting: deque[tuple[threads.Work, threads.Done]] = deque()
        self._is_busy = False
        self._stoppers: list[greenlet] = []

    def submit(self, work: threads.Work, done: threads.Done) -> None:
        self._waiting.append((work, done))
        if not self._is_busy:
            self._is_busy = True
            delay = self._process.steps.uniform(0.000_01, 0.000_5)
            self._process.run_in_thread(self._run, delay)

    def stop(self) -> None:
        while self._is_busy:
            self._process.wait_for(self._stoppers)

    def _run(self) -> None:
        while self._waiting:
            work, done = self._waiting.popleft()
            result, error = None, None
            try:
                result = work()
            except Exception as raised:
                error = raised
            self._process.loop.call_soon(done, result, error)
        self._is_busy = False
        stoppers, self._stoppers = self._stoppers, []
        for thread in stoppers:
            self._process.wake(thread)


def install() -> None:
    """Called once, before any module of mq but these is imported."""
    clock.time = _time
    clock.monotonic = clock.perf_counter = clock.thread_time = _monotonic
    clock.time_ns = lambda: int(_time() * 1e9)
    clock.monotonic_ns = lambda: int(_monotonic() * 1e9)
    for name in ("randrange", "shuffle", "sample", "uniform"):
        setattr(random_ids, name, _by_process(name))
    usage.usage = lambda: usage.Usage(0.0, 0)
    random_ids.random_bytes = _random_bytes
    random_ids.uuid4 = _uuid4
    database.connect = _connect
    threads.Lock = SimulatedLock
    threads.DiskThread = SimulatedDiskThread
    for name, method in {
        "listdir": Disk.listdir, "mkdir": Disk.mkdir, "rmdir": Disk.rmdir, "stat": Disk.stat,
        "lstat": Disk.stat,
        "unlink": Disk.unlink, "scandir": _Entries, "statvfs": lambda disk, _: disk.room(),
    }.items():  # fmt: skip
        setattr(files, name, _on_path(name, method))
    files.open = _open
    for name in ("link", "rename", "replace"):
        setattr(files, name, _on_paths(name, Disk.link if name == "link" else Disk.replace))
    for name, method in {
        "pread": Disk.pread, "pwrite": Disk.pwrite, "preadv": _preadv,
        "ftruncate": Disk.ftruncate, "posix_fallocate": Disk.allocate,
        "reserve": Disk.reserve,
        "fsync": lambda disk, file: disk.fsync(file, "fsync"),
        "fdatasync": lambda disk, file: disk.fsync(file, "fdatasync"),
        "fstat": lambda disk, file: disk.status(file.inode), "lseek": Disk.seek,
        "fchmod": Disk.change_mode, "fchown": lambda *_: None, "posix_fadvise": lambda *_: None,
        "map_to_read": Disk.map_to_read, "map_to_write": Disk.map_to_write,
        "lock": _lock, "unlock": _unlock,
    }.items():  # fmt: skip
        setattr(files, name, _on_descriptor(name, method))
    files.close = _close
    files.sendfile = _sendfile
