"""Files of a daemon's state: whole or absent, never half written.

A write goes to a temporary file, is fsynced and renamed; the replaced content stays as `.bak`, the
name used by Java's ConfigManager. A reader that finds the file missing, empty or torn reads `.bak`;
if that is invalid, too, it starts empty. A torn file is kept as `.broken` for inspection.
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

# A daemon that stops may save while an earlier save still runs in its thread. By path: a write in
# the event loop must not wait for a thread that writes other files.
_writing: dict[Path, threads.Lock] = {}


class StateFile:
    """A state file that changes implicitly, while requests are served.

    An administrator's change is written with `replace`. After any other change call `changed`: the
    file is written in a thread, soon, and many changes in a row are written together. ``encode``
    returns the content and its version, a number that never falls; a late write with an older
    version is skipped.
    """

    # After a save the next one waits for so many times its duration: the encoding of a large file,
    # which is done in the event loop, would take much of its time if the file changed all the time.
    PAUSE = 10

    def __init__(self, path: Path, encode: Callable[[], tuple[bytes, int]]) -> None:
        self.path = path
        self.unsaved = False  # there are unsaved changes
        self._is_failing = False  # a save has failed since the last change
        self._encode = encode
        self._lock = threads.Lock()  # guards the file and its version
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
        """Write the result of ``encode`` in a thread, and call ``then`` when it is on the disk.

        Nothing else is saved between the two, because it would lack the written change. Other
        changes made meanwhile are saved afterwards. Raises OSError; ``then`` was not called in that
        case. If the caller is cancelled, the change is completed nevertheless: `close` waits for
        it.
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
        """Write the file soon; errors are logged, and `save_pending` retries."""
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
        """Like `changed`, but the file is written when this returns, unless such a write was done a
        moment ago: it runs in the event loop, which gets PAUSE times as long for everything
        else.
        """
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
        """Whether all changes are in the file, and no save is in progress. Also true while the file
        cannot be written: otherwise each caller that waits would try to write it.
        """
        return self._is_failing or (not self.unsaved and not self._saving.locked())

    async def settle(self) -> None:
        """Return when all earlier changes are in the file; errors are logged, and `save_pending`
        retries.
        """
        try:
            async with self._saving:
                if not self._is_failing:
                    await self._save_pending()
        except OSError as error:
            self._failed(error)

    async def save_pending(self) -> None:
        """Write the file in a thread if there are unsaved changes. Raises OSError."""
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
        """Write unsaved changes. Raises OSError."""
        if self._replacing:
            await asyncio.wait(self._replacing)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.save_pending()

    async def _save_until_done(self) -> None:
        await asyncio.sleep(0)  # changes of this turn of the event loop are written together
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
        log.error("cannot save %s: %s", self.path, error,
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
    files.remove(temporary)  # left by a process that was killed, with any mode
    try:
        with _open_as(temporary, path) as descriptor:
            files.write_all(descriptor, data)
            files.fsync(descriptor)
    except OSError:
        files.remove(temporary)  # a full disk needs the space
        raise
    # Create a second name for the old content, then replace the first by one rename: at any moment
    # `path` or `.bak` exists, wherever the process is killed.
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
    """Create a folder if it is missing, and make its name survive a crash of the machine.

    The name is fsynced even if the folder exists: the process that created it may have been killed
    before that.
    """
    if not files.exists(folder.parent):
        make_folder(folder.parent)
    files.make_folders(folder)
    # A parent that we may enter but not list belongs to an administrator, who created its content.
    with contextlib.suppress(PermissionError):
        files.sync_folder(folder.parent)


def make_private_folder(folder: Path) -> None:
    """Like `make_folder`; a new folder is accessible by its owner only, the mode of an existing one
    does not change.
    """
    is_new = not files.exists(folder)
    make_folder(folder)
    if is_new:
        with files.opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            files.fchmod(descriptor, 0o700)


@contextlib.contextmanager
def _open_as(new: Path, model: Path) -> Iterator[int]:
    """Open a new file for writing, closed at the end, with the permissions of `model` if that
    exists.

    It may contain secrets. Its owner is kept if this process may change owners.
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
    """Decode the file or else its `.bak`; None if both are missing.

    If both are damaged, an ERROR is logged with `lost` as the consequence. `decode` raises
    ValueError for invalid content. Raises OSError for an existing file that cannot be read now: it
    may be valid, and the other one is older. A daemon that started with that would undo
    acknowledged changes.
    """
    damaged: list[Path] = []
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            data = files.read_bytes(candidate)
        except FileNotFoundError:
            continue
        except IsADirectoryError as error:
            log.error("cannot read %s: %s", candidate, error.strerror)
            continue
        except OSError as error:
            text = f"{error.strerror}: the file cannot be read now, and its .bak is older"
            raise OSError(error.errno, text, str(candidate)) from None
        if not data.strip():
            log.warning("%s is empty", candidate)
            continue
        try:
            return decode(data)
        except ValueError as error:
            log.error("%s is damaged; ignoring it: %s", candidate, error)
            _keep_broken(candidate, data)
            damaged.append(_broken(candidate))
    if damaged:
        log.error(
            "%s and its .bak are damaged: %s. To restore it, stop the daemon, repair %s, save it "
            "as %s and start the daemon again",
            *(path, lost, " or ".join(map(str, damaged)), path.name),
        )
    return None


def read_body(path: Path, schema: type[B]) -> B | None:
    """Like `read_with_backup`, for the JSON of a class."""

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
        log.error("cannot copy the damaged file to %s: %s", broken, error.strerror)
