"""Files that operations write: there whole or not at all, whatever happens in the middle.

A file is written beside its place, as .mq-XXXXXXXX.tmp, and gets its name when it is whole. Errors
and signals leave nothing of it. What `kill -9` leaves in the middle is for nobody who may not read
the file itself, and the next process that writes in the folder removes it.
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
    """The content of a file. Raises NotFound where it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except OSError as error:
        raise cannot("read", path, error) from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to be read. Raises as `read` does."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except OSError as error:
        raise cannot("read", path, error) from error
    with file:
        yield file


def replace(path: Path, content: bytes, *, keep: int = 0) -> None:
    """Put `content` in place of the file at `path`: a reader sees the old one or the new one.

    Up to `keep` files that it replaces stay as PATH.1, the latest, to PATH.`keep`. It is on disk
    then, with its name. Raises CannotWrite when that fails; nothing half-written is left.

    What is a stream is written to, and keeps its name.
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
    """`replace` what has the name, be it a link, whose file stays as it is, or a pipe.

    The file gets `mode`, but nothing that the umask or the file before it forbids: what was hidden
    stays so. It survives the death of the machine if it is to be `durable`. Raises OSError.
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
    """A new file in the folder of another; what still has its name at the end is removed."""
    # A name that nobody can foresee: the folder may be everybody's, as /tmp is.
    partial = path.with_name(f".mq-{random_ids.random_bytes(8).hex()}.tmp")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file, partial
    finally:
        with suppress(OSError):  # what went wrong before is the error
            partial.unlink(missing_ok=True)


def _is_kept(descriptor: int) -> bool:
    """Lock a new file; says whether it is still there, as another's `_remove_left` may be first."""
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
    """Remove what killed processes have left in a folder: nobody has it locked. Once in a process,
    since folders may be large."""
    import fcntl

    with suppress(OSError):
        for left in folder.glob(f".mq-{'?' * 16}.tmp"):
            with suppress(OSError):  # another's, or it has just gone
                descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()
                finally:
                    os.close(descriptor)


def is_stream(path: Path) -> bool:
    """Whether a path names a device, a pipe or a socket: a file must not take its name."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def stream(path: Path) -> Iterator[BinaryIO]:
    """A stream to be written. Raises CannotWrite, also for what is written to it."""
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise cannot("write", path, error) from error


def publish(partial: Path, path: Path, *, keep: int = 0) -> None:
    """Give a file that is written and on disk its name. Raises OSError."""
    if keep and path.exists():
        for number in range(keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                _backup(path, number).replace(_backup(path, number + 1))
        _duplicate(path, _backup(path, 1))
    partial.replace(path)
    _sync_folder(path.parent)


def size(path: Path) -> int:
    """Bytes in a file."""
    return path.stat().st_size


def remove(path: Path) -> None:
    """Remove a file, if it is there; it stays away when the machine dies. Raises CannotWrite."""
    try:
        path.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise cannot("remove", path, error) from error


def beside(path: Path, what: str) -> Path:
    """A hidden name in the folder of `path`, for a file that serves it."""
    return path.with_name(f".{path.name}.{what}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only process that writes `path`. Raises Locked if another does.

    The lock is on a file beside it, which the holder removes before it lets go. A stream is
    everybody's.
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
            # Between opening and locking, its holder may have removed it: then it locks nothing.
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
    """The error for a file that cannot be read, written or locked."""
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
    """Have the file under a second name, so that its own never goes missing."""
    backup.unlink(missing_ok=True)
    try:
        os.link(path, backup)
    except OSError:  # a filesystem without links
        shutil.copy2(path, backup)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
