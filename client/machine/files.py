"""Files: the operations that the store, the state files and their tools need.

The first part consists of names for system calls, with their signatures; a simulated disk replaces
only these. The second part is built on them. Paths may be `Path` or text. All functions raise
OSError, as the system calls do.
"""

import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

AnyPath = str | os.PathLike[str]

# system calls -----------------------------------------------------------------------------------

open = os.open
close = os.close
read = os.read
pread = os.pread
pwrite = os.pwrite
lseek = os.lseek
ftruncate = os.ftruncate
fsync = os.fsync
fstat = os.fstat
fchmod = os.fchmod
fchown = os.fchown
stat = os.stat
lstat = os.lstat
listdir = os.listdir
scandir = os.scandir
mkdir = os.mkdir
rmdir = os.rmdir
link = os.link
unlink = os.unlink
rename = os.rename
replace = os.replace
statvfs = os.statvfs
if sys.platform == "linux":  # not on all systems that clients run on, which do not need these
    preadv = os.preadv
    fdatasync = os.fdatasync
    posix_fallocate = os.posix_fallocate
    posix_fadvise = os.posix_fadvise
    sendfile = os.sendfile


_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


_AT_FDCWD = -100
_STATX_MNT_ID = 0x1000
_STATX_MNT_ID_UNIQUE = 0x4000
_STATX_SIZE = 256
_STATX_MNT_ID_AT = 144  # offset of stx_mnt_id


def mount_id(path: AnyPath) -> int:
    """Return the id of the mount that contains a path, or 0 if the system does not report one.

    Uses statx(2) of Linux. Since 6.8 the id is unique until the next boot; older kernels may reuse
    it.
    """
    import ctypes  # only brokers need it

    call = getattr(ctypes.CDLL(None), "statx", None)
    if call is None:
        return 0
    found = ctypes.create_string_buffer(_STATX_SIZE)
    mask = _STATX_MNT_ID | _STATX_MNT_ID_UNIQUE
    if call(_AT_FDCWD, os.fsencode(path), 0, mask, found):
        return 0
    return int.from_bytes(found.raw[_STATX_MNT_ID_AT:][:8], sys.byteorder)


def reserve(descriptor: int, position: int, size: int) -> None:
    """Allocate disk blocks for a part of a file without changing its content or length.

    Uses fallocate(2) of Linux, which `os` lacks: posix_fallocate writes zeros if the file system
    does not support it, which may overwrite concurrent writes. Raises OSError, also if there is no
    such call.
    """
    import ctypes  # only brokers with a high write rate need it

    call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if call is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if call(descriptor, _KEEP_SIZE, position, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def map_to_read(descriptor: int, size: int) -> mmap.mmap:
    """Map the first ``size`` bytes of a file into read-only memory."""
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ)


def map_to_write(descriptor: int, size: int) -> mmap.mmap:
    """Map the first ``size`` bytes of a file into memory; changes are written to the file."""
    return mmap.mmap(descriptor, size)


_POPULATE_READ = 22  # MADV_POPULATE_READ, since Linux 5.14


def populate(mapping: object, start: int, size: int) -> None:
    """Read a part of a mapping into memory and enter it in the page table.

    A page in the page table leaves memory only when the kernel reclaims it. Raises OSError: EFAULT
    if the disk cannot be read, EINVAL if the kernel does not have the call.
    """
    if isinstance(mapping, mmap.mmap):
        aligned = start - start % mmap.PAGESIZE
        mapping.madvise(_POPULATE_READ, aligned, size + start - aligned)


_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, since Linux 5.14


def prepare_write(mapping: object, start: int, size: int) -> None:
    """Prepare the pages of a part of a mapping for writes.

    Raises OSError with ENOSPC if the disk has no space for them, instead of the SIGBUS that a write
    would cause. Does nothing on a kernel without the call.
    """
    if isinstance(mapping, mmap.mmap):
        aligned = start - start % mmap.PAGESIZE
        try:
            mapping.madvise(_POPULATE_WRITE, aligned, size + start - aligned)
        except OSError as error:
            if error.errno == errno.EFAULT:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
            if error.errno != errno.EINVAL:
                raise


def lock(descriptor: int) -> None:
    """Lock the first byte against other processes, as FileChannel.tryLock of Java does.

    The lock is lost when this process closes any descriptor of the file. Raises BlockingIOError or
    PermissionError if another process has it.
    """
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def unlock(descriptor: int) -> None:
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 0)


@contextmanager
def locked_folder(path: AnyPath) -> Iterator[None]:
    """Hold an advisory lock on this folder; waits for other holders."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


# derived functions --------------------------------------------------------------------------------

_CREATED_MODE = 0o666  # before the umask is applied
_READ_AT_ONCE = 1 << 20
_COPIED_AT_ONCE = 1 << 24


@contextmanager
def opened(path: AnyPath, flags: int, mode: int = _CREATED_MODE) -> Iterator[int]:
    """Open a file, and close the descriptor at the end."""
    descriptor = open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        close(descriptor)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, position: int = 0) -> None:
    """Write all of data at a position. If it raises, a part may have been written."""
    written = pwrite(descriptor, data, position)
    while written < len(data):
        data = memoryview(data)[written:]
        position += written
        written = pwrite(descriptor, data, position)


#: Errors of writes to a full disk.
FULL = frozenset((errno.ENOSPC, errno.EDQUOT))

#: Errors of reads that mean that the disk cannot return its content. A file system reports a
#: wrong checksum of its own with some of them.
UNREADABLE = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENODATA", "EUCLEAN", "EBADMSG", "EREMOTEIO", "EILSEQ")
    if hasattr(errno, name)
)
BLOCK = 4096  # bytes; the granularity in which unreadable parts of a file are located


def read_all(descriptor: int, size: int, position: int) -> bytes:
    """Read a part of a file, up to the end of the file.

    A single pread ends before the first unreadable block, without an error.
    """
    data = pread(descriptor, size, position)
    while 0 < len(data) < size:
        more = pread(descriptor, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def read_around(descriptor: int, size: int, position: int) -> tuple[bytes, list[int]]:
    """Read a part of a file, with zeros for unreadable blocks.

    Also returns the file positions of these blocks. Raises OSError for other errors.
    """
    try:
        return read_all(descriptor, size, position), []
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
    pieces: list[bytes] = []
    unreadable: list[int] = []
    end = position + size
    while position < end:
        length = min(BLOCK - position % BLOCK, end - position)
        try:
            piece = read_all(descriptor, length, position)
            if not piece:
                break
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            piece = bytes(length)
            unreadable.append(position - position % BLOCK)
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces), unreadable


def copy_around(source: int, position: int, end: int, target: int, at: int) -> int:
    """Copy a part of an open file to another, with holes for unreadable blocks.

    Returns the number of these blocks.
    """
    count = 0
    while position < end:
        data, unreadable = read_around(source, min(_READ_AT_ONCE, end - position), position)
        if not data:
            break
        count += len(unreadable)
        for begin in range(0, len(data), BLOCK):
            piece = data[begin : begin + BLOCK]
            if piece.count(0) != len(piece):
                write_all(target, piece, at + begin)
        position += len(data)
        at += len(data)
    return count


def touch_singly(mapping: object, start: int) -> None:
    """Disable read-around for a mapping from a position on: a page fault then reads only its own
    page.
    """
    if isinstance(mapping, mmap.mmap) and sys.platform == "linux":
        start += -start % mmap.PAGESIZE
        if start < len(mapping):
            mapping.madvise(mmap.MADV_RANDOM, start, len(mapping) - start)


def read_bytes(path: AnyPath, most: int | None = None) -> bytes:
    """Return the content of a file, or its first ``most`` bytes. The file may be a pipe: `<(…)` of
    a shell.
    """
    with opened(path, os.O_RDONLY) as descriptor:
        pieces: list[bytes] = []
        position = 0
        while most is None or position < most:
            count = _READ_AT_ONCE if most is None else min(_READ_AT_ONCE, most - position)
            piece = _read_on(descriptor, count, position)
            if not piece:
                break
            pieces.append(piece)
            position += len(piece)
        return b"".join(pieces)


def _read_on(descriptor: int, count: int, position: int) -> bytes:
    try:
        return pread(descriptor, count, position)
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise
        return read(descriptor, count)


def write_new(path: AnyPath, data: bytes) -> None:
    """Create or overwrite a file with a content, and fsync it. Its directory entry is not
    fsynced.
    """
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        write_all(descriptor, data)
        fsync(descriptor)


def append(path: AnyPath, data: bytes) -> None:
    """Append to a file, which is created if missing, and fsync it."""
    with opened(path, os.O_WRONLY | os.O_CREAT) as descriptor:
        write_all(descriptor, data, fstat(descriptor).st_size)
        fsync(descriptor)


def sync_folder(path: AnyPath) -> None:
    """Fsync a folder, so that new and removed names in it survive a power failure."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        fsync(descriptor)


def exists(path: AnyPath) -> bool:
    return _mode(path) is not None


def is_file(path: AnyPath) -> bool:
    mode = _mode(path)
    return mode is not None and mode & _KIND == _REGULAR


def is_folder(path: AnyPath) -> bool:
    mode = _mode(path)
    return mode is not None and mode & _KIND == _FOLDER


def is_own_folder(path: AnyPath) -> bool:
    """Whether a path is a folder and not a symbolic link to one, whose content belongs elsewhere.

    Raises OSError if the path does not exist.
    """
    return lstat(path).st_mode & _KIND == _FOLDER


_KIND, _REGULAR, _FOLDER = 0o170000, 0o100000, 0o040000
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF)  # as in pathlib


def _mode(path: AnyPath) -> int | None:
    try:
        return stat(path).st_mode
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return None
    except ValueError:  # a null character: not a path
        return None


def size(path: AnyPath) -> int:
    """Return the length of a file in bytes."""
    return stat(path).st_size


def children(folder: Path) -> list[Path]:
    """Return the content of a folder, sorted by name."""
    return [folder / name for name in sorted(listdir(folder))]


def below(folder: Path) -> list[Path]:
    """Return everything in a folder and its subfolders, sorted by path; empty if it does not exist.

    Links to folders are included, but not followed: they may form a cycle.
    """
    try:
        inside = children(folder)
    except OSError:
        return []
    found = list(inside)
    for child in inside:
        with suppress(FileNotFoundError):  # deleted meanwhile
            if is_own_folder(child):
                found += below(child)
    return sorted(found)


def folders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder."""
    with scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def make_folders(path: Path) -> None:
    """Create a folder and its parents, unless they exist."""
    try:
        mkdir(path)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folders(path.parent)
        _make_folder(path)
    except OSError:  # systems report different errors for an existing folder
        if not is_folder(path):
            raise


def _make_folder(path: Path) -> None:
    try:
        mkdir(path)
    except OSError:
        if not is_folder(path):
            raise


def remove(path: AnyPath) -> None:
    """Delete a file, if it exists."""
    try:
        unlink(path)
    except FileNotFoundError:
        pass


def remove_tree(folder: Path) -> None:
    """Delete a folder with its content, as far as possible; raises nothing.

    Symbolic links are deleted but not followed. Nothing happens if `folder` itself is a link.
    """
    with suppress(OSError):
        if not is_own_folder(folder):
            return
        for child in children(folder):
            with suppress(OSError):
                if is_own_folder(child):
                    remove_tree(child)
                else:
                    unlink(child)
        rmdir(folder)


_COPIES_ON_WRITE = frozenset(("bcachefs", "btrfs", "nilfs2", "zfs"))


def copies_on_write(path: AnyPath) -> bool:
    """Whether a path is on a file system that allocates new space for each rewritten block.

    posix_fallocate guarantees nothing there.
    """
    real = os.path.realpath(path)
    longest, kind = "", ""
    try:
        mounts = read_bytes("/proc/self/mounts").decode(errors="replace").splitlines()
    except OSError:
        return False
    for _, folder, its_kind, *_ in map(str.split, mounts):
        folder = folder.replace("\\040", " ").rstrip("/")
        if (real + "/").startswith(folder + "/") and len(folder) >= len(longest):
            longest, kind = folder, its_kind
    return kind in _COPIES_ON_WRITE


def are_equal(one: AnyPath, other: AnyPath) -> bool:
    """Whether two files have the same content."""
    with opened(one, os.O_RDONLY) as first, opened(other, os.O_RDONLY) as second:
        length = fstat(first).st_size
        return length == fstat(second).st_size and all(
            pread(first, _READ_AT_ONCE, at) == pread(second, _READ_AT_ONCE, at)
            for at in range(0, length, _READ_AT_ONCE)
        )


def copy_data(
    source: int,
    position: int,
    end: int,
    target: int,
    at: int,
    step: Callable[[int], None] = lambda _: None,
) -> None:
    """Copy a part of an open file to another, preserving holes.

    ``step`` is called with the number of bytes after each copied piece.
    """
    shift = at - position
    while position < end:
        position = min(_seek(source, position, os.SEEK_DATA, end), end)
        stop = min(_seek(source, position, os.SEEK_HOLE, end), end)
        lseek(target, position + shift, os.SEEK_SET)
        while position < stop:
            sent = sendfile(target, source, position, min(stop - position, _COPIED_AT_ONCE))
            if sent == 0:
                raise OSError("the file ended while it was copied")
            position += sent
            step(sent)


def _seek(descriptor: int, position: int, whence: int, end: int) -> int:
    try:
        return lseek(descriptor, position, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: only a hole is left
            raise
        return end


class Space(NamedTuple):
    """Bytes of a file system: the total, and those available to this process."""

    total: int
    free: int


def space(path: AnyPath) -> Space:
    """Return the space of the file system that contains a path."""
    status = statvfs(path)
    return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
