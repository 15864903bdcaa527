import errno
import os
import stat
import threading
from pathlib import Path

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
    local_files.beside(path, "tmp").mkdir()
    with pytest.raises(CannotWrite, match="Is a directory"):
        local_files.replace(path, b"")


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
