"""The simulated disk: its calls answer as the system's do, and it keeps what a disk keeps."""

import errno
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.simulation.disk import Descriptors, Disk, Open, Renaming
from tests.simulation.image import Image
from tests.simulation.inode import BLOCK, SECTOR, Change
from tests.simulation.world import World

# the same calls on both -------------------------------------------------------------------------


def _size(status: os.stat_result) -> int:
    """Of a file: a folder's is up to the file system."""
    return 0 if stat.S_ISDIR(status.st_mode) else status.st_size


class System:
    """A folder of this machine."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.open_files: list[int] = []

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def call(self, name: str, *arguments: Any) -> object:
        return getattr(self, name)(*arguments)

    def open(self, path: str, flags: int) -> object:
        self.open_files.append(os.open(self.path(path), flags, 0o644))
        return None

    def pwrite(self, file: int, data: bytes, position: int) -> object:
        return os.pwrite(self.open_files[file], data, position)

    def pread(self, file: int, size: int, position: int) -> object:
        return os.pread(self.open_files[file], size, position)

    def ftruncate(self, file: int, length: int) -> object:
        os.ftruncate(self.open_files[file], length)
        return None

    def allocate(self, file: int, position: int, length: int) -> object:
        os.posix_fallocate(self.open_files[file], position, length)
        return None

    def seek(self, file: int, position: int, whence: int) -> object:
        return os.lseek(self.open_files[file], position, whence)

    def copy(self, target: int, source: int, position: int, size: int) -> object:
        return os.sendfile(self.open_files[target], self.open_files[source], position, size)

    def fsync(self, file: int) -> object:
        os.fsync(self.open_files[file])
        return None

    def size(self, file: int) -> object:
        return _size(os.fstat(self.open_files[file]))

    def stat(self, path: str) -> object:
        status = os.stat(self.path(path))
        return stat.S_ISDIR(status.st_mode), _size(status)

    def listdir(self, path: str) -> object:
        return sorted(os.listdir(self.path(path)))

    def mkdir(self, path: str) -> object:
        os.mkdir(self.path(path))
        return None

    def rmdir(self, path: str) -> object:
        os.rmdir(self.path(path))
        return None

    def unlink(self, path: str) -> object:
        os.unlink(self.path(path))
        return None

    def link(self, path: str, new: str) -> object:
        os.link(self.path(path), self.path(new))
        return None

    def replace(self, path: str, new: str) -> object:
        os.replace(self.path(path), self.path(new))
        return None

    def close(self) -> None:
        for descriptor in self.open_files:
            os.close(descriptor)


class Simulated:
    """The same of a simulated disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.open_files: list[Open] = []

    def call(self, name: str, *arguments: Any) -> object:
        if name in ("pwrite", "pread", "ftruncate", "allocate", "seek"):
            file, *rest = arguments
            return getattr(self.disk, name)(self.open_files[file], *rest)
        if name in ("listdir", "mkdir", "rmdir", "unlink", "link", "replace"):
            return getattr(self.disk, name)(*arguments)
        return getattr(self, name)(*arguments)

    def open(self, path: str, flags: int) -> object:
        number = self.disk.open(path, flags, 0o644)
        self.open_files.append(self.disk.descriptors.open[number][1])
        return None

    def copy(self, target: int, source: int, position: int, size: int) -> object:
        return self.disk.send(self.open_files[target], self.open_files[source], position, size)

    def fsync(self, file: int) -> object:
        self.disk.fsync(self.open_files[file], "fsync")
        return None

    def size(self, file: int) -> object:
        return _size(self.disk.status(self.open_files[file].inode))

    def stat(self, path: str) -> object:
        status = self.disk.stat(path)
        return stat.S_ISDIR(status.st_mode), _size(status)


PATHS = st.sampled_from(("a", "b", "f", "f/a", "f/b", "f/g", "f/g/a", "a/x", "missing/x"))
FILES = st.integers(0, 5)
POSITIONS = st.one_of(
    st.sampled_from((0, 1, SECTOR, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, -1)),
    st.integers(0, 5 * BLOCK),
)
LENGTHS = st.one_of(st.sampled_from((0, 1, SECTOR, BLOCK, 2 * BLOCK)), st.integers(0, 3 * BLOCK))
DATA = st.builds(lambda letter, size: letter * size, st.sampled_from((b"x", b"y", b"\0")), LENGTHS)
FLAGS = st.sampled_from(
    (
        os.O_RDONLY,
        os.O_WRONLY,
        os.O_RDWR,
        os.O_RDWR | os.O_CREAT,
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL,
        os.O_RDONLY | os.O_DIRECTORY,
    )
)
WHENCE = st.sampled_from((os.SEEK_SET, os.SEEK_END, os.SEEK_CUR, os.SEEK_DATA, os.SEEK_HOLE))
CALLS = st.one_of(
    st.tuples(st.just("open"), PATHS, FLAGS),
    st.tuples(st.just("open"), PATHS, st.just(os.O_RDWR | os.O_CREAT)),
    st.tuples(st.just("pwrite"), FILES, DATA, POSITIONS),
    st.tuples(st.just("pread"), FILES, LENGTHS, POSITIONS),
    st.tuples(st.just("ftruncate"), FILES, POSITIONS),
    st.tuples(st.just("allocate"), FILES, POSITIONS, LENGTHS),
    st.tuples(st.just("seek"), FILES, POSITIONS, WHENCE),
    st.tuples(st.just("copy"), FILES, FILES, POSITIONS, LENGTHS),
    st.tuples(st.just("fsync"), FILES),
    st.tuples(st.just("size"), FILES),
    st.tuples(st.sampled_from(("stat", "listdir", "mkdir", "rmdir", "unlink")), PATHS),
    st.tuples(st.sampled_from(("link", "replace")), PATHS, PATHS),
)
_OF_FILES = ("pwrite", "pread", "ftruncate", "allocate", "seek", "copy", "fsync", "size")


def _outcome(target: System | Simulated, call: tuple[Any, ...]) -> object:
    try:
        return target.call(*call)
    except OSError as error:
        assert error.errno is not None
        return errno.errorcode[error.errno]


@given(st.lists(CALLS, min_size=5, max_size=60))
@example([("mkdir", "a"), ("open", "a", 0), ("size", 0)])
@example([("open", "a", 66), ("ftruncate", 0, 1), ("seek", 0, 0, 2), ("copy", 0, 0, 0, 512)])
def test_each_call_answers_as_the_system_does(calls: list[tuple[Any, ...]]) -> None:
    disk = new_disk()
    with TemporaryDirectory() as root:
        system, simulated = System(root), Simulated(disk)
        try:
            for call in calls:
                if call[0] in _OF_FILES:
                    count = len(system.open_files)
                    if not count:
                        continue
                    files = 2 if call[0] == "copy" else 1
                    call = (call[0], *(one % count for one in call[1 : 1 + files]),
                            *call[1 + files :])  # fmt: skip
                if call[0] in ("seek", "copy") and _is_up_to_file_system(simulated, call):
                    continue
                expected = _outcome(system, call)
                assert _outcome(simulated, call) == expected, call
                assert len(system.open_files) == len(simulated.open_files)
            _compare_trees(system, simulated, "")
        finally:
            system.close()


def _is_up_to_file_system(simulated: Simulated, call: tuple[Any, ...]) -> bool:
    """Positions in folders, whether room that is reserved and was read counts as data, and where a
    copy within one file ends that reads what it has written."""
    files = call[1:3] if call[0] == "copy" else call[1:2]
    inodes = [simulated.open_files[file].inode for file in files]
    is_within_one = len(inodes) > len(set(map(id, inodes)))
    return is_within_one or any(inode.is_folder or inode.reserved for inode in inodes)


def _compare_trees(system: System, simulated: Simulated, folder: str) -> None:
    names = simulated.disk.listdir(folder)
    assert names == system.listdir(folder)
    for name in names:
        path = f"{folder}/{name}" if folder else name
        assert simulated.stat(path) == system.stat(path)
        inode = simulated.disk._find(path)
        if inode.is_folder:
            _compare_trees(system, simulated, path)
        else:
            assert inode.content() == Path(system.path(path)).read_bytes()


# what a power cut leaves ------------------------------------------------------------------------


def new_disk(seed: int = 1) -> Disk:
    return Disk(World(seed), "test", Descriptors())


def make(disk: Disk, path: str, data: bytes = b"", *, synced: bool = True) -> Open:
    """A file, open to be written."""
    number = disk.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    file = disk.descriptors.open[number][1]
    if data:
        disk.pwrite(file, data, 0)
    if synced:
        disk.fsync(file, "fsync")
        sync_folder(disk, path.rpartition("/")[0])
    return file


def sync_folder(disk: Disk, path: str) -> None:
    number = disk.open(path, os.O_RDONLY | os.O_DIRECTORY, 0)
    disk.fsync(disk.descriptors.open.pop(number)[1], "fsync")


def content(disk: Disk, path: str) -> bytes | None:
    try:
        return disk._find(path).content()
    except FileNotFoundError:
        return None


def nothing(_: object, __: int) -> bool:
    return False


def everything(_: object, __: int) -> bool:
    return True


def outcomes(disk: Disk, look: Callable[[Disk], object]) -> set[object]:
    """Return the results of each subset of the writes that were not synced."""
    image = Image.of(disk)
    units = disk.unsynced()
    found = set()
    for mask in range(1 << len(units)):
        kept = {(item.number, at) for bit, (item, at, _) in enumerate(units) if mask >> bit & 1}
        copy = image.disk(World(1), Descriptors())
        copy.lose_power(lambda item, at, kept=kept: (item.number, at) in kept)  # type: ignore[misc]
        found.add(look(copy))
    return found


def test_what_was_synced_is_there_whatever_else_is_lost() -> None:
    disk = new_disk()
    file = make(disk, "a", b"x" * 2000)
    disk.pwrite(file, b"y" * 100, 600)
    disk.lose_power(nothing)
    assert content(disk, "a") == b"x" * 2000


def test_a_new_file_without_its_folder_synced_may_be_gone_though_it_was_synced() -> None:
    disk = new_disk()
    disk.fsync(make(disk, "a", b"x", synced=False), "fsync")
    assert outcomes(disk, lambda disk: content(disk, "a")) == {None, b"x"}


def test_a_name_may_survive_without_what_the_file_holds() -> None:
    disk = new_disk()
    file = make(disk, "a", synced=False)
    disk.ftruncate(file, 3)
    sync_folder(disk, "")
    disk.pwrite(file, b"xyz", 0)
    assert outcomes(disk, lambda disk: content(disk, "a")) == {b"", b"\0\0\0", b"xyz"}


def test_each_sector_of_a_write_survives_by_itself() -> None:
    disk = new_disk()
    file = make(disk, "a", b"." * 1536)
    disk.pwrite(file, b"x" * 1024, 256)
    found = outcomes(disk, lambda disk: content(disk, "a"))
    parts = [(b"." * 512, b"." * 256 + b"x" * 256), (b"." * 512, b"x" * 512),
             (b"." * 512, b"x" * 256 + b"." * 256)]  # fmt: skip
    assert found == {
        one + two + three for one in parts[0] for two in parts[1] for three in parts[2]
    }


def test_a_sector_never_lacks_an_earlier_change_and_has_a_later_one() -> None:
    disk = new_disk()
    file = make(disk, "a", b"..")
    disk.pwrite(file, b"x", 0)
    disk.pwrite(file, b"y", 1)
    assert outcomes(disk, lambda disk: content(disk, "a")) == {b"..", b"x.", b"xy"}


def test_lengths_come_in_their_order_and_before_what_is_written_behind_them() -> None:
    disk = new_disk()
    file = make(disk, "a", b"old old")
    disk.ftruncate(file, 3)
    disk.ftruncate(file, 6)
    disk.pwrite(file, b"new", 3)
    found = outcomes(disk, lambda disk: content(disk, "a"))
    assert found == {b"old old", b"old", b"old\0\0\0", b"oldnew"}


def test_what_is_written_while_an_fsync_runs_is_not_part_of_it() -> None:
    disk = new_disk()
    file = make(disk, "a", b"..")
    disk.pwrite(file, b"x", 0)
    with_fsync_running(disk, file, lambda: disk.pwrite(file, b"y", 1))
    assert outcomes(disk, lambda disk: content(disk, "a")) == {b"x.", b"xy"}


def test_of_two_fsyncs_at_once_the_first_to_end_takes_nothing_from_the_second() -> None:
    """The second covers a write that the first does not, and one comes that neither covers."""
    disk = new_disk()
    file = make(disk, "a", b"...")
    disk.pwrite(file, b"x", 0)

    def meanwhile() -> None:
        disk.pwrite(file, b"y", 1)
        disk.fsync(file, "fsync")
        disk.pwrite(file, b"z", 2)

    with_fsync_running(disk, file, meanwhile)
    assert outcomes(disk, lambda disk: content(disk, "a")) == {b"xy.", b"xyz"}


def test_a_name_that_comes_while_its_folder_is_synced_is_not_part_of_it() -> None:
    disk = new_disk()
    number = disk.open("", os.O_RDONLY | os.O_DIRECTORY, 0)
    folder = disk.descriptors.open[number][1]
    make(disk, "a", synced=False)
    with_fsync_running(disk, folder, lambda: make(disk, "b", synced=False))
    assert outcomes(disk, lambda disk: tuple(disk.listdir(""))) == {("a",), ("a", "b")}


def with_fsync_running(disk: Disk, file: Open, meanwhile: Callable[[], object]) -> None:
    """Call a function while an fsync runs."""

    def watch(name: str, _: str) -> None:
        if name == "fsync" and disk.watch is watch:
            disk.watch = None
            meanwhile()

    disk.watch = watch
    disk.fsync(file, "fsync")


def test_what_an_fsync_that_fails_has_forgotten_no_later_one_brings_back() -> None:
    found = set()
    for seed in range(20):
        disk = new_disk(seed)
        file = make(disk, "a", b"..")
        disk.pwrite(file, b"x", 0)
        disk.faults.fails = lambda name, path: errno.EIO
        with pytest.raises(OSError, match="Input/output"):
            disk.fsync(file, "fsync")
        disk.faults.fails = None
        assert content(disk, "a") == b"x."  # for those who read
        disk.fsync(file, "fsync")
        disk.lose_power(everything)
        found.add(content(disk, "a"))
    assert found == {b"..", b"x."}


def test_a_rename_leaves_the_one_or_the_other_until_its_folder_is_synced() -> None:
    disk = new_disk()
    make(disk, "a", b"old")
    make(disk, "a.tmp", b"new")
    disk.replace("a.tmp", "a")
    assert outcomes(disk, lambda disk: (content(disk, "a"), content(disk, "a.tmp"))) == {
        (b"old", b"new"), (b"new", None)}  # fmt: skip
    sync_folder(disk, "")
    disk.lose_power(nothing)
    assert (content(disk, "a"), content(disk, "a.tmp")) == (b"new", None)


def test_of_two_renames_over_a_name_the_first_may_be_what_is_left() -> None:
    """Its file has no name any more when the power goes, and has lost what was not synced."""
    disk = new_disk()
    make(disk, "a", b"old")
    for data in (b"one", b"two"):
        make(disk, "a.tmp", data, synced=False)
        disk.replace("a.tmp", "a")
    assert outcomes(disk, lambda disk: content(disk, "a")) == {
        b"old", b"", b"one", b"two"}  # fmt: skip


def test_a_file_that_was_removed_may_be_back() -> None:
    disk = new_disk()
    make(disk, "a", b"x")
    disk.unlink("a")
    assert outcomes(disk, lambda disk: content(disk, "a")) == {None, b"x"}
    sync_folder(disk, "")
    assert outcomes(disk, lambda disk: content(disk, "a")) == {None}


def test_links_are_names_of_one_file() -> None:
    disk = new_disk()
    file = make(disk, "a", b"x")
    disk.link("a", "b")
    disk.pwrite(file, b"y", 0)
    found = outcomes(disk, lambda disk: (content(disk, "a"), content(disk, "b")))
    assert found == {(b"x", None), (b"y", None), (b"x", b"x"), (b"y", b"y")}


def test_what_is_in_a_folder_goes_with_its_name() -> None:
    disk = new_disk()
    disk.mkdir("f")
    make(disk, "f/a", b"x")
    assert outcomes(disk, lambda disk: content(disk, "f/a")) == {None, b"x"}
    sync_folder(disk, "")
    assert outcomes(disk, lambda disk: content(disk, "f/a")) == {b"x"}


def test_a_mapping_gets_to_the_disk_by_sectors_and_at_any_moment() -> None:
    disk = new_disk()
    file = make(disk, "a", b"." * 1024)
    mapping = disk.map_to_write(file, 1024)
    struct.pack_into("c", mapping, 0, b"x")
    disk.stat("a")  # a call after which the first may be written
    struct.pack_into("c", mapping, 1, b"y")
    struct.pack_into("c", mapping, 600, b"z")

    def look(disk: Disk) -> object:
        data = content(disk, "a")
        assert data is not None
        return data[:2] + data[600:601]

    assert outcomes(disk, look) == {b"...", b"x..", b"xy.", b"..z", b"x.z", b"xyz"}
    disk.fsync(file, "fdatasync")
    assert outcomes(disk, look) == {b"xyz"}
    struct.pack_into("c", mapping, 0, b"w")
    mapping.close()
    assert outcomes(disk, look) == {b"xyz", b"wyz"}


def test_a_kill_keeps_everything() -> None:
    disk = new_disk()
    file = make(disk, "a", b".." + bytes(1022), synced=False)
    mapping = disk.map_to_write(file, 1024)
    struct.pack_into("c", mapping, 1, b"y")
    disk.close_all_of(None)
    assert content(disk, "a") == b".y" + bytes(1022)
    disk.lose_power(everything)
    assert content(disk, "a") == b".y" + bytes(1022)


def test_a_journal_keeps_names_and_lengths_in_their_order() -> None:
    for seed in range(60):
        disk = new_disk(seed)
        disk.has_journal = True
        for name in "abcdef":
            make(disk, name, synced=False)
        disk.ftruncate(make(disk, "a", synced=False), 10)
        make(disk, "g", synced=False)
        disk.lose_power()
        names = "".join(disk.listdir(""))
        assert "abcdefg".startswith(names)
        assert (content(disk, "a") == bytes(10)) or names != "abcdefg"


def test_without_a_journal_they_survive_in_any_order() -> None:
    found = set()
    for seed in range(200):
        disk = new_disk(seed)
        disk.has_journal = False
        make(disk, "a", synced=False)
        make(disk, "b", synced=False)
        disk.lose_power()
        found.add("".join(disk.listdir("")))
    assert found == {"", "a", "b", "ab"}


def test_a_full_disk_takes_nothing_that_needs_room() -> None:
    disk = new_disk()
    file = make(disk, "a", synced=False)
    disk.ftruncate(file, 10 * BLOCK)
    disk.pwrite(file, b"x", 0)
    disk.allocate(file, BLOCK, BLOCK)
    disk.faults.is_full = True
    assert disk.pwrite(file, b"y" * BLOCK, 0) == BLOCK
    assert disk.pwrite(file, b"y" * 3 * BLOCK, BLOCK) == BLOCK  # what there is room for
    with pytest.raises(OSError, match="No space"):
        disk.pwrite(file, b"x", 5 * BLOCK)
    with pytest.raises(OSError, match="No space"):
        disk.allocate(file, 5 * BLOCK, 1)
    assert disk.used() == 2 * BLOCK


def test_a_bit_that_changes_at_rest_is_read_and_stays() -> None:
    disk = new_disk()
    file = make(disk, "a", b"a")
    disk.rot(file.inode, 0, 1)
    assert disk.pread(file, 1, 0) == b"c"
    disk.lose_power(nothing)
    assert content(disk, "a") == b"c"


def test_a_copy_of_a_disk_forgets_what_the_disk_would_and_leaves_it_alone() -> None:
    disk = new_disk()
    file = make(disk, "a", b"old")
    make(disk, "b", b"b", synced=False)
    disk.pwrite(file, b"new", 0)
    units = [(type(item), at) for item, at, _ in disk.unsynced()]
    copy = Image.of(disk).disk(World(1), Descriptors())
    assert [(type(item), at) for item, at, _ in copy.unsynced()] == units
    assert units == [(Renaming, -1), (Change, 0), (Change, 0)]
    copy.lose_power(nothing)
    assert (content(copy, "a"), content(copy, "b")) == (b"old", None)
    assert (content(disk, "a"), content(disk, "b")) == (b"new", b"b")
