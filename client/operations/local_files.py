"""Files written by operations: complete or absent, whatever interrupts the process.

A file is written next to its target, as .mq-XXXXXXXX.tmp, and renamed when complete. Errors and
signals leave nothing behind. A file left by `kill -9` is readable only by those who may read the
target, and the next process that writes in the folder removes it.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from mq.client.machine import random_ids
from mq.client.operations.errors import CannotWrite, Locked, NotFound, OperationError


def read(path: Path) -> bytes:
    """Return the content of a file. Raises NotFound if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except OSError as error:
        raise cannot("read", path, error) from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading. Raises what `read` raises."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except OSError as error:
        raise cannot("read", path, error) from error
    with file:
        yield file


def replace(path: Path, content: bytes, *, keep: int = 0) -> None:
    """Replace the file at `path` by `content`: readers see the old file or the new one.

    Up to `keep` previous files stay as PATH.1, the latest, to PATH.`keep`. On return the file and
    its name are on the disk. Raises CannotWrite after a failure, which leaves no partial file. If
    `path` is a stream, the content is written to it.
    """
    if is_stream(path):
        with stream(path) as file:
            file.write(content)
        return
    try:
        put(path, content, keep=keep)
    except OSError as error:
        raise cannot("write", path, error) from error


def put(
    path: Path, content: bytes, *, mode: int = 0o666, keep: int = 0, durable: bool = True
) -> None:
    """`replace` for any kind of existing name, be it a link, whose target stays unchanged, or a
    pipe.

    The file gets `mode`, restricted by the umask and by the previous file's mode. If `durable`, it
    survives a power failure. Raises OSError.
    """
    _remove_left(path.parent)
    with suppress(FileNotFoundError):
        mode &= path.stat().st_mode
    while True:
        with _new_beside(path, mode) as (file, partial):
            if not _is_kept(file.fileno()):
                continue
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
                publish(partial, path, keep=keep)
            else:
                partial.replace(path)
            return


@contextmanager
def _new_beside(path: Path, mode: int) -> Iterator[tuple[BinaryIO, Path]]:
    """Create a new file in the folder of another one; it is deleted at the end if it still
    exists.
    """
    # An unpredictable name: the folder may be writable by everyone, like /tmp.
    partial = path.with_name(f".mq-{random_ids.random_bytes(8).hex()}.tmp")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file, partial
    finally:
        with suppress(OSError):  # an earlier error takes precedence
            partial.unlink(missing_ok=True)


def _is_kept(descriptor: int) -> bool:
    """Lock a new file; returns whether it still exists, since another process's `_remove_left` may
    be first.
    """
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where nothing is removed
        return True
    return os.fstat(descriptor).st_nlink > 0


@cache
def _remove_left(folder: Path) -> None:
    """Remove the files that killed processes left in a folder: those that no process has locked.

    Runs once per process, since folders may be large.
    """
    import fcntl

    with suppress(OSError):
        for left in folder.glob(f".mq-{'?' * 16}.tmp"):
            with suppress(OSError):  # in use by another process, or deleted meanwhile
                descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()
                finally:
                    os.close(descriptor)


def is_stream(path: Path) -> bool:
    """Whether a path names a device, a pipe or a socket, which a file must not replace."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def stream(path: Path) -> Iterator[BinaryIO]:
    """Open a stream for writing. Raises CannotWrite, also for writes to it."""
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise cannot("write", path, error) from error


def publish(partial: Path, path: Path, *, keep: int = 0) -> None:
    """Rename a complete file that is on the disk to its target. Raises OSError."""
    if keep and path.exists():
        for number in range(keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                _backup(path, number).replace(_backup(path, number + 1))
        _duplicate(path, _backup(path, 1))
    partial.replace(path)
    _sync_folder(path.parent)


def size(path: Path) -> int:
    """Return the size of a file in bytes."""
    return path.stat().st_size


def remove(path: Path) -> None:
    """Delete a file, if it exists, durably. Raises CannotWrite."""
    try:
        path.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise cannot("remove", path, error) from error


def beside(path: Path, what: str) -> Path:
    """Return a hidden name in the folder of `path`, for an auxiliary file."""
    return path.with_name(f".{path.name}.{what}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Ensure that no other process writes `path`. Raises Locked if one does.

    The lock is on a separate file, which the holder deletes before it releases the lock. Streams
    are not locked.
    """
    if is_stream(path):
        yield
        return
    lock = beside(path, "lock")
    descriptor = _take(lock, path)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _take(lock: Path, path: Path) -> int:
    import fcntl

    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise cannot("write", lock, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, its holder may have deleted it: then the lock has no
            # effect.
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(descriptor)
            raise Locked(
                f"{path} is being written by another mq", hint="try again when it has ended"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise cannot("lock", lock, error) from error
        os.close(descriptor)


def cannot(act: str, path: Path | str, error: OSError) -> OperationError:
    """Return the error for a file that cannot be read, written or locked."""
    hint = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "nothing half-written was left: make room, or choose another place"
    elif error.errno == errno.ENOENT and act != "read":
        hint = f"there is no folder {Path(path).parent}: make it, or choose another place"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = "run it as a user who may, or choose another place"
    reason = os.strerror(error.errno) if error.errno else str(error)
    kind = NotFound if act == "read" else CannotWrite
    return kind(f"cannot {act} {path}: {reason}", hint=hint)


def _backup(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _duplicate(path: Path, backup: Path) -> None:
    """Create a second name for the file, so that its own never disappears."""
    backup.unlink(missing_ok=True)
    try:
        os.link(path, backup)
    except OSError:  # a file system without links
        shutil.copy2(path, backup)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
