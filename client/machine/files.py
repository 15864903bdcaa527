"""Files: what the store, the files of state and their tools ask of a disk.

The first part are names for system calls, with their signatures; a simulated disk replaces these,
and these only. The second part is made of them. Paths may be `Path` or text.

Raises OSError throughout, as the system calls do.
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
if sys.platform == "linux":  # not on all systems that clients run on, and none of these needs them
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
    """The id of the mount that has a path, 0 if the system does not report one.

    statx(2) of Linux. From 6.8 on no other mount of the same boot has this id; older kernels may
    reuse it.
    """
    import ctypes  # only a broker needs it

    call = getattr(ctypes.CDLL(None), "statx", None)
    if call is None:
        return 0
    found = ctypes.create_string_buffer(_STATX_SIZE)
    mask = _STATX_MNT_ID | _STATX_MNT_ID_UNIQUE
    if call(_AT_FDCWD, os.fsencode(path), 0, mask, found):
        return 0
    return int.from_bytes(found.raw[_STATX_MNT_ID_AT:][:8], sys.byteorder)


def reserve(descriptor: int, position: int, size: int) -> None:
    """Have a part of a file take its blocks of the disk; neither its bytes nor its length change.

    fallocate(2) of Linux, which `os` lacks: posix_fallocate writes zeros where a file system cannot
    do it, over what others write meanwhile. Raises OSError, also where there is no such call.
    """
    import ctypes  # only a broker with very much to write needs it

    call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if call is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if call(descriptor, _KEEP_SIZE, position, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def map_to_read(descriptor: int, size: int) -> mmap.mmap:
    """The first ``size`` bytes of a file as memory that cannot be written."""
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ)


def map_to_write(descriptor: int, size: int) -> mmap.mmap:
    """The first ``size`` bytes of a file as memory; what is written there goes to the file."""
    return mmap.mmap(descriptor, size)


_POPULATE_READ = 22  # MADV_POPULATE_READ, since Linux 5.14


def populate(mapping: object, start: int, size: int) -> None:
    """Read a part of a mapping into memory and enter it in the page table.

    A page that is in the page table leaves memory only when the kernel reclaims it. Raises OSError:
    EFAULT where the disk cannot be read, EINVAL where the kernel does not have the call.
    """
    if isinstance(mapping, mmap.mmap):
        aligned = start - start % mmap.PAGESIZE
        mapping.madvise(_POPULATE_READ, aligned, size + start - aligned)


_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, since Linux 5.14


def prepare_write(mapping: object, start: int, size: int) -> None:
    """Have the pages of a part of a mapping ready for a store.

    Raises OSError, with ENOSPC where the disk has no space for them, instead of the SIGBUS that a
    store would get. Does nothing on a kernel without the call.
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

    The lock goes with any descriptor of the file that this process closes. Raises BlockingIOError
    or PermissionError where another process has it.
    """
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def unlock(descriptor: int) -> None:
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 0)


@contextmanager
def locked_folder(path: AnyPath) -> Iterator[None]:
    """Nobody else is in here for this folder, of those that ask; waits for them."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


# what is made of them ---------------------------------------------------------------------------

_CREATED_MODE = 0o666  # what the umask leaves of it
_READ_AT_ONCE = 1 << 20
_COPIED_AT_ONCE = 1 << 24


@contextmanager
def opened(path: AnyPath, flags: int, mode: int = _CREATED_MODE) -> Iterator[int]:
    """A descriptor that is closed at the end."""
    descriptor = open(path, flags | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        close(descriptor)


def write_all(descriptor: int, data: bytes | bytearray | memoryview, position: int = 0) -> None:
    """Write all of data at a position. When it raises, a part may have been written."""
    written = pwrite(descriptor, data, position)
    while written < len(data):
        data = memoryview(data)[written:]
        position += written
        written = pwrite(descriptor, data, position)


#: Errors of writes to a full disk.
FULL = frozenset((errno.ENOSPC, errno.EDQUOT))

#: Errors of reads that say that the disk cannot give what it holds. A file system answers a wrong
#: checksum of its own with some of them.
UNREADABLE = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENODATA", "EUCLEAN", "EBADMSG", "EREMOTEIO", "EILSEQ")
    if hasattr(errno, name)
)
BLOCK = 4096  # bytes; unreadable parts of a file are found in this granularity


def read_all(descriptor: int, size: int, position: int) -> bytes:
    """Read a part of a file, as far as the file goes.

    A single pread ends before the first block that cannot be read, without an error.
    """
    data = pread(descriptor, size, position)
    while 0 < len(data) < size:
        more = pread(descriptor, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def read_around(descriptor: int, size: int, position: int) -> tuple[bytes, list[int]]:
    """Read a part of a file with zeros for the blocks that cannot be read.

    Also returns the positions in the file of these blocks. Raises OSError for other errors.
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
    """Copy a part of an open file to another, with holes for the blocks that cannot be read.

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
    """Say of a mapping from a position on that pages beside one that is touched are not wanted."""
    if isinstance(mapping, mmap.mmap) and sys.platform == "linux":
        start += -start % mmap.PAGESIZE
        if start < len(mapping):
            mapping.madvise(mmap.MADV_RANDOM, start, len(mapping) - start)


def read_bytes(path: AnyPath, most: int | None = None) -> bytes:
    """The content of a file, or its first ``most`` bytes. It may be a pipe: `<(…)` of a shell."""
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
    """Make a file, or one anew, with a content, and fsync it. Its name is not fsynced."""
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        write_all(descriptor, data)
        fsync(descriptor)


def append(path: AnyPath, data: bytes) -> None:
    """Write behind the end of a file, made if there is none, and fsync it."""
    with opened(path, os.O_WRONLY | os.O_CREAT) as descriptor:
        write_all(descriptor, data, fstat(descriptor).st_size)
        fsync(descriptor)


def sync_folder(path: AnyPath) -> None:
    """Make new names in a folder, and their absence, survive the death of the machine."""
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
    """Whether a path is a folder, and no symbolic link to one: what is in that belongs elsewhere.

    Raises OSError where nothing is there.
    """
    return lstat(path).st_mode & _KIND == _FOLDER


_KIND, _REGULAR, _FOLDER = 0o170000, 0o100000, 0o040000
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF)  # as pathlib has it


def _mode(path: AnyPath) -> int | None:
    try:
        return stat(path).st_mode
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return None
    except ValueError:  # a null character: no path
        return None


def size(path: AnyPath) -> int:
    """The length of a file in bytes."""
    return stat(path).st_size


def children(folder: Path) -> list[Path]:
    """What is in a folder, by name."""
    return [folder / name for name in sorted(listdir(folder))]


def below(folder: Path) -> list[Path]:
    """All that is in a folder and in those in it, by path; nothing if it is not there.

    Links to folders are among it, and what is in those is not: they may lead in a circle.
    """
    try:
        inside = children(folder)
    except OSError:
        return []
    found = list(inside)
    for child in inside:
        with suppress(FileNotFoundError):  # it has just gone
            if is_own_folder(child):
                found += below(child)
    return sorted(found)


def folders(folder: Path) -> list[str]:
    """The names of the folders in a folder."""
    with scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def make_folders(path: Path) -> None:
    """Make a folder, and those above it, unless they are there."""
    try:
        mkdir(path)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_folders(path.parent)
        _make_folder(path)
    except OSError:  # whatever the system says first of one that is there
        if not is_folder(path):
            raise


def _make_folder(path: Path) -> None:
    try:
        mkdir(path)
    except OSError:
        if not is_folder(path):
            raise


def remove(path: AnyPath) -> None:
    """Take a file away, if it is there."""
    try:
        unlink(path)
    except FileNotFoundError:
        pass


def remove_tree(folder: Path) -> None:
    """Take a folder away with what is in it, as far as that can be done: nothing is raised.

    Of a symbolic link only the link goes, and none where `folder` itself is one.
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
    """Whether a path is on a file system that needs new space for each block that is written again.

    posix_fallocate promises nothing there.
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
    """Copy a part of an open file to another, which has holes where the source has.

    ``step`` is told how many bytes were copied, as they are.
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
        if error.errno != errno.ENXIO:  # which says that only a hole is left
            raise
        return end


class Space(NamedTuple):
    """Bytes of a file system: all, and those that we may still take."""

    total: int
    free: int


def space(path: AnyPath) -> Space:
    """How much room there is where a path is."""
    status = statvfs(path)
    return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
