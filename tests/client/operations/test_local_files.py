import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mq.client.operations import local_files
from mq.client.operations.errors import CannotWrite, Locked


def test_a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    local_files.replace(path, b"first")
    local_files.replace(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_as_many_older_files_are_kept_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for number in range(5):
        local_files.replace(path, b"%d" % number, keep=3)
    found = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
    assert found == {"file": b"4", "file.1": b"3", "file.2": b"2", "file.3": b"1"}


def test_a_folder_that_is_not_there_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="No such file or directory") as raised:
        local_files.replace(tmp_path / "none" / "file", b"")
    assert raised.value.hint == (
        f"there is no folder {tmp_path / 'none'}: make it, or choose another place"
    )


def test_what_is_in_the_way_of_the_new_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(CannotWrite, match="Is a directory"):
        local_files.replace(path, b"")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_beside_that_others_made_in_advance_is_not_written_to(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    local_files.beside(tmp_path / "file", "tmp").symlink_to(theirs)
    local_files.replace(tmp_path / "file", b"mine")
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert theirs.read_bytes() == b"theirs"


@pytest.mark.parametrize("is_durable", [True, False])
def test_who_could_not_read_a_file_cannot_read_the_new_one(
    tmp_path: Path, is_durable: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    if is_durable:
        local_files.replace(path, b"new")
    else:
        local_files.put(path, b"new", durable=False)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)


def test_ctrl_c_in_the_middle_leaves_the_file_that_was_there_and_nothing_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    local_files.replace(path, b"old")

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if len(list(tmp_path.iterdir())) > 1:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            local_files.replace(path, b"new")
    finally:
        sys.settrace(before)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


# Dies, or waits for a signal, when all is written but the file has no name yet.
AMID = """
import os, signal, sys
from pathlib import Path
from mq.client.operations import local_files

def amid(descriptor):
    if sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    print("written", flush=True)
    sys.stdin.read()

os.fsync = amid
local_files.replace(Path(sys.argv[1]), b"whole")
"""


def test_what_a_killed_process_left_goes_with_the_next_write_and_what_is_written_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    command = [sys.executable, "-c", AMID, str(path)]
    assert subprocess.run([*command, "dies"], check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    waits = [*command, "waits"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"written\n"
        assert not left.exists()
        local_files.replace(tmp_path / "other", b"")  # here nothing was removed yet
        process.stdin.close()
        assert process.wait(60) == 0
    assert path.read_bytes() == b"whole"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["file", "other"]


def test_what_cannot_be_removed_is_an_error_of_one_line(tmp_path: Path) -> None:
    local_files.remove(tmp_path / "none")
    with pytest.raises(CannotWrite, match=f"cannot remove {tmp_path}: "):
        local_files.remove(tmp_path)


def test_who_may_not_write_is_told_what_to_do() -> None:
    refused = local_files.cannot("write", "/x", PermissionError(errno.EACCES, "denied"))
    assert isinstance(refused, CannotWrite)
    assert refused.hint == "run it as a user who may, or choose another place"


def test_only_one_holds_a_lock_and_its_file_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with local_files.locked(path):
        with pytest.raises(Locked), local_files.locked(path):
            pass
        assert local_files.beside(path, "lock").exists()
    assert list(tmp_path.iterdir()) == []


def test_many_that_lock_one_after_the_other_never_hold_it_together(tmp_path: Path) -> None:
    """The lock file comes and goes with each: none may hold one that is not there any more."""
    path = tmp_path / "file"
    holders: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        done = 0
        while done < 50:
            try:
                with local_files.locked(path):
                    holders.append(number)
                    most.append(len(holders))
                    os.sched_yield()
                    holders.remove(number)
                    done += 1
            except Locked:
                os.sched_yield()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 200 and max(most) == 1


def test_a_pipe_is_written_to_and_keeps_its_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with local_files.locked(pipe):
        local_files.replace(pipe, b"offsets")
    reader.join(10)
    assert read == [b"offsets"]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_device_that_is_full_stays_one(tmp_path: Path) -> None:
    device = tmp_path / "full"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        device.open("wb").close()
    except PermissionError:
        pytest.skip("no devices here")
    with pytest.raises(CannotWrite, match="No space left on device"):
        local_files.replace(device, b"offsets")
    assert device.is_char_device()
    assert list(tmp_path.iterdir()) == [device]
