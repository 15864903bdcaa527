"""The functions built on system calls behave like those of pathlib and shutil."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.machine import files


@pytest.fixture
def pipe() -> Iterator[Path]:
    """A pipe with ten digits in it, as `<(…)` of a shell names it."""
    reader, writer = os.pipe()
    os.write(writer, b"0123456789")
    os.close(writer)
    yield Path(f"/dev/fd/{reader}")
    os.close(reader)


def test_a_pipe_is_read_to_its_end(pipe: Path) -> None:
    assert files.read_bytes(pipe) == b"0123456789"


def test_a_read_of_a_pipe_is_limited(pipe: Path) -> None:
    assert files.read_bytes(pipe, 4) == b"0123"


def test_files_of_the_kernel_without_a_length_are_read() -> None:
    assert files.read_bytes(Path("/proc/self/status")).startswith(b"Name:")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "precious").write_text("x")
    return folder


def test_a_tree_goes_without_what_its_links_lead_to(tmp_path: Path, elsewhere: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "link").symlink_to(elsewhere)
    (tree / "link to a file").symlink_to(elsewhere / "precious")
    files.remove_tree(tree)
    assert not tree.exists()
    assert (elsewhere / "precious").read_text() == "x"


def test_a_tree_that_is_a_link_itself_is_left_alone(tmp_path: Path, elsewhere: Path) -> None:
    tree = tmp_path / "tree"
    tree.symlink_to(elsewhere)
    files.remove_tree(tree)
    assert tree.is_symlink() and (elsewhere / "precious").exists()


def test_what_cannot_be_removed_keeps_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in "abc":
        (tree / name).write_text("x")

    def unlink(path: Path) -> None:
        if path.name == "a":
            raise OSError(errno.EPERM, "immutable", str(path))
        os.unlink(path)

    monkeypatch.setattr(files, "unlink", unlink)
    files.remove_tree(tree)
    assert os.listdir(tree) == ["a"]


def test_links_to_folders_are_listed_and_not_followed(tmp_path: Path, elsewhere: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "file").write_text("x")
    (tree / "link").symlink_to(elsewhere)
    (tree / "loop").symlink_to(tree)
    (tree / "inner" / "loop").symlink_to(tree)
    assert files.below(tree) == sorted(tree.rglob("*"))


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[None]:
    """A working folder that has been deleted."""
    before = os.open(".", os.O_RDONLY)
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    yield
    os.fchdir(before)
    os.close(before)


@pytest.mark.usefixtures("gone")
def test_no_folder_can_be_made_in_one_that_was_deleted() -> None:
    with pytest.raises(FileNotFoundError):
        files.make_folders(Path("one/two"))


def test_a_folder_that_is_there_is_made_whatever_the_system_says_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(path: Path) -> None:
        raise OSError(errno.EROFS, "read-only", str(path))

    monkeypatch.setattr(files, "mkdir", mkdir)
    files.make_folders(tmp_path)
    with pytest.raises(OSError, match="read-only"):
        files.make_folders(tmp_path / "new")


def test_what_no_path_leads_to_is_not_there(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop, loop / "x", tmp_path / "a\0b", tmp_path / "none"):
        assert not files.exists(path)
        assert not files.is_file(path)
        assert not files.is_folder(path)


def test_what_a_disk_cannot_give_is_not_copied_as_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x" * 10_000)

    def lseek(descriptor: int, position: int, whence: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "lseek", lseek)
    with (
        files.opened(tmp_path / "file", os.O_RDONLY) as source,
        files.opened(tmp_path / "copy", os.O_WRONLY | os.O_CREAT) as target,
        pytest.raises(OSError, match="Input/output error"),
    ):
        files.copy_data(source, 0, 10_000, target, 0)


# A system that lacks some of these calls; all other code may still take it for Linux.
ELSEWHERE = """
import os, sys
for name in ("fdatasync", "posix_fallocate", "posix_fadvise"):
    delattr(os, name)
here, sys.platform = sys.platform, "darwin"
import mq.client.machine.files
sys.platform = here
import mq.client.consumer.consumer, mq.client.credentials, mq.client.offsets.local_offsets
import mq.pipeline.sink
"""


def test_clients_can_be_imported_where_there_are_not_all_calls_of_linux() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
