"""Files of a daemon's state: whole or absent, never half written.

A write goes to a temporary file, is fsynced and renamed; the content it replaces stays beside it
as `.bak`, the name Java's ConfigManager uses. A reader that finds the file missing, empty or torn
takes `.bak`; if that is no better it starts empty. A torn file is kept as `.broken` for whoever
looks into it.
"""

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from mq.client.machine import clock, files, threads
from mq.protocol.bodies.schema import Body
from mq.protocol.errors import RemoteProtocolError

log = logging.getLogger(__name__)

T = TypeVar("T")
B = TypeVar("B", bound=Body)

# A daemon that stops may save while a save of before still runs in its thread. By path: what is
# written in the loop does not wait until the disk has what a thread writes to other files.
_writing: dict[Path, threads.Lock] = {}


class StateFile:
    """A state file that changes by the way, while others wait to be served.

    What an administrator changes is written with `replace`. After any other change call
    `changed`: the file is written in a thread, soon, and many changes in a row go together.
    ``encode`` gives the content and its version, a number that never falls; a write that comes
    late, behind one of a newer version, is left out.
    """

    # After a save the next one waits for so many times its duration: of a large file that changes
    # again and again the encoding, which is done in the loop, would take much of its time.
    PAUSE = 10

    def __init__(self, path: Path, encode: Callable[[], tuple[bytes, int]]) -> None:
        self.path = path
        self.unsaved = False  # there are changes that are not in the file
        self._is_failing = False  # a save has failed since the last of them
        self._encode = encode
        self._lock = threads.Lock()  # of the file and the version in it
        self._written = -1
        self._saving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._replacing: set[asyncio.Task[None]] = set()
        self._next_at_once = 0.0

    def write(self, data: bytes, version: int) -> None:
        """Write the file now. Raises OSError."""
        with self._lock:
            if version >= self._written:
                write_atomically(self.path, data)
                self._written = version

    async def replace(
        self, encode: Callable[[], tuple[bytes, int]], then: Callable[[], None]
    ) -> None:
        """Write what ``encode`` gives, in a thread, and when it is on the disk call ``then``.

        Nothing else is saved between the two: it would not have what was written. What was changed
        meanwhile is saved behind it. Raises OSError; ``then`` was not called. When whoever waits
        is cancelled, it is done all the same: `close` waits for it.
        """
        task = asyncio.get_running_loop().create_task(self._replace(encode, then))
        self._replacing.add(task)
        task.add_done_callback(self._replaced)
        await asyncio.shield(task)

    async def _replace(
        self, encode: Callable[[], tuple[bytes, int]], then: Callable[[], None]
    ) -> None:
        async with self._saving:
            unsaved, self.unsaved = self.unsaved, False
            try:
                await asyncio.to_thread(self.write, *encode())
            except BaseException:
                self.unsaved = self.unsaved or unsaved
                raise
            then()

    def _replaced(self, task: asyncio.Task[None]) -> None:
        self._replacing.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), OSError):
            self._failed(error)

    def changed(self) -> None:
        """Write the file soon; what goes wrong is logged, and tried again by `save_pending`."""
        self.unsaved, self._is_failing = True, False
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the daemon does not serve yet
            try:
                self.save()
            except OSError as error:
                self._failed(error)
            return
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._save_until_done())

    def changed_at_once(self) -> None:
        """As `changed`, but the file is written when this returns, unless others were written so a
        moment ago: it is done in the loop, which has PAUSE times as long for everything else."""
        began = clock.monotonic()
        if began < self._next_at_once or self._saving.locked():
            self.changed()
            return
        self.unsaved, self._is_failing = True, False
        try:
            self.save()
        except OSError as error:
            self._failed(error)
        self._next_at_once = began + (clock.monotonic() - began) * (1 + self.PAUSE)

    def save(self) -> None:
        """Write the file now, in this thread. Raises OSError."""
        self.write(*self._encode())
        self.unsaved = False

    @property
    def is_settled(self) -> bool:
        """Whether all changes are in the file, and no save is under way; also while the file cannot
        be written: who waits for that would have it tried each time."""
        return self._is_failing or (not self.unsaved and not self._saving.locked())

    async def settle(self) -> None:
        """Return when all changes of before are in the file; what goes wrong is logged, and tried
        again by `save_pending`."""
        try:
            async with self._saving:
                if not self._is_failing:
                    await self._save_pending()
        except OSError as error:
            self._failed(error)

    async def save_pending(self) -> None:
        """Write the file, in a thread, if there are changes that are not in it. Raises OSError."""
        async with self._saving:
            await self._save_pending()

    async def _save_pending(self) -> None:
        if not self.unsaved:
            return
        self.unsaved = False
        try:
            await asyncio.to_thread(self.write, *self._encode())
        except BaseException:
            self.unsaved = True
            raise

    async def close(self) -> None:
        """Write what is not written yet. Raises OSError."""
        if self._replacing:
            await asyncio.wait(self._replacing)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.save_pending()

    async def _save_until_done(self) -> None:
        await asyncio.sleep(0)  # changes of this turn of the loop are written together
        while self.unsaved:
            began = clock.monotonic()
            try:
                await self.save_pending()
            except OSError as error:
                self._failed(error)
                return
            await asyncio.sleep((clock.monotonic() - began) * self.PAUSE)

    def _failed(self, error: OSError) -> None:
        self._is_failing = True
        log.error("%s cannot be saved now: %s", self.path, error,
                  extra={"failure": f"saves of {self.path.name}"})  # fmt: skip


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the content of `path` by `data`, durably, and keep the former content as `.bak`.

    Raises:
        OSError: nothing was replaced; the file has its former content.
    """
    with _writing.setdefault(path, threads.Lock()):
        _write(path, data)


def _write(path: Path, data: bytes) -> None:
    if not files.exists(path):
        make_folder(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    files.remove(temporary)  # of a process that was killed, with whatever mode
    try:
        with _open_as(temporary, path) as descriptor:
            files.write_all(descriptor, data)
            files.fsync(descriptor)
    except OSError:
        files.remove(temporary)  # a full disk needs the space
        raise
    # A second name for the old content, then one rename over the first: at no moment is there
    # neither `path` nor `.bak`, wherever the process is killed.
    backup = path.with_name(path.name + ".bak")
    if files.exists(path):
        link = path.with_name(path.name + ".bak.tmp")
        files.remove(link)
        try:
            files.link(path, link)
        except OSError:  # a file system without hard links
            with _open_as(link, path) as descriptor:
                files.write_all(descriptor, files.read_bytes(path))
        files.replace(link, backup)
    files.replace(temporary, path)
    files.sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder, unless it is there, and have its name survive the death of the machine.

    Also where it is there already: who made it may have been killed before that.
    """
    if not files.exists(folder.parent):
        make_folder(folder.parent)
    files.make_folders(folder)
    # One that we may pass through and not list is an administrator's, who made what is in it.
    with contextlib.suppress(PermissionError):
        files.sync_folder(folder.parent)


def make_private_folder(folder: Path) -> None:
    """As `make_folder`; a new folder is for its owner only, the mode of an existing one stays."""
    is_new = not files.exists(folder)
    make_folder(folder)
    if is_new:
        with files.opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            files.fchmod(descriptor, 0o700)


@contextlib.contextmanager
def _open_as(new: Path, model: Path) -> Iterator[int]:
    """A new file to write, closed at the end. Only those may read it who may read `model`, if that
    is there.

    There may be secrets in it. Its owner it keeps where we may give files away.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        status = files.stat(model)
    except FileNotFoundError:
        with files.opened(new, flags) as descriptor:
            yield descriptor
        return
    with files.opened(new, flags, 0o600) as descriptor:
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(PermissionError):
                files.fchown(descriptor, status.st_uid, status.st_gid)
        files.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        yield descriptor


def read_with_backup(
    path: Path, decode: Callable[[bytes], T], *, lost: str = "the daemon starts without its content"
) -> T | None:
    """What `decode` makes of the file or else of its `.bak`; None if there is neither.

    If both are there and none can be used, an ERROR says so, with `lost` as the consequence.
    `decode` raises ValueError for content that it cannot use. Raises OSError for a file that is
    there and cannot be read now: it may be sound, and what is in the other one is older. A daemon
    that began with that would undo what it has acknowledged.
    """
    damaged: list[Path] = []
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            data = files.read_bytes(candidate)
        except FileNotFoundError:
            continue
        except IsADirectoryError as error:
            log.error("%s cannot be read: %s", candidate, error.strerror)
            continue
        except OSError as error:
            text = f"{error.strerror}: it cannot be read now, and what is beside it is older"
            raise OSError(error.errno, text, str(candidate)) from None
        if not data.strip():
            log.warning("%s is empty", candidate)
            continue
        try:
            return decode(data)
        except ValueError as error:
            log.error("%s is damaged and not used: %s", candidate, error)
            _keep_broken(candidate, data)
            damaged.append(_broken(candidate))
    if damaged:
        log.error(
            "%s cannot be read, nor its .bak: %s. To restore it, stop the daemon, repair %s, save "
            "it as %s and start the daemon again",
            *(path, lost, " or ".join(map(str, damaged)), path.name),
        )
    return None


def read_body(path: Path, schema: type[B]) -> B | None:
    """The same of a file that is JSON of a class."""

    def decode(data: bytes) -> B:
        try:
            return schema.decode(data)
        except RemoteProtocolError as error:
            raise ValueError(str(error)) from None

    return read_with_backup(path, decode)


def _broken(path: Path) -> Path:
    return path.with_name(path.name + ".broken")


def _keep_broken(path: Path, data: bytes) -> None:
    broken = _broken(path)
    try:
        files.remove(broken)
        with _open_as(broken, path) as descriptor:
            files.write_all(descriptor, data)
    except OSError as error:
        log.error("no copy of the damaged file in %s: %s", broken, error.strerror)
