"""Files that operations write: there whole or not at all, whatever happens in the middle."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

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

    Up to `keep` files that it replaces stay as PATH.1, the latest, to PATH.`keep`. Raises
    CannotWrite when that fails; the old file is still there then, and nothing half-written.

    What is a stream is written to, and keeps its name.
    """
    if is_stream(path):
        with stream(path) as file:
            file.write(content)
        return
    partial = beside(path, "tmp")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        publish(partial, path, keep=keep)
    except OSError as error:
        raise cannot("write", path, error) from error
    finally:
        with suppress(OSError):  # what went wrong before is the error
            partial.unlink(missing_ok=True)


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
