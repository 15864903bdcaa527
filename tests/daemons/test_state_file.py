import errno
import stat
import threading
from pathlib import Path

import orjson
import pytest

from mq.client.machine import files
from mq.daemons.state_file import read_with_backup, write_atomically
from tests.daemons.peer import PATIENCE


def test_a_write_replaces_the_content_and_keeps_the_former_as_bak(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    write_atomically(path, b"1")
    write_atomically(path, b"2")
    assert path.read_bytes() == b"2"
    assert (tmp_path / "config" / "topics.json.bak").read_bytes() == b"1"
    assert sorted(p.name for p in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_a_failing_fsync_leaves_the_former_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"
    write_atomically(path, b"1")

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"2")
    assert path.read_bytes() == b"1"


def test_the_rest_of_a_killed_write_does_not_disturb_the_next(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    write_atomically(path, b"1")
    (tmp_path / "topics.json.tmp").write_bytes(b"half")
    (tmp_path / "topics.json.bak.tmp").write_bytes(b"half")
    write_atomically(path, b"2")
    assert path.read_bytes() == b"2"
    assert (tmp_path / "topics.json.bak").read_bytes() == b"1"


def test_a_write_does_not_wait_until_the_disk_has_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One may be in the event loop, for a topic created by a send, and the other in a thread."""
    begun, goes_on = threading.Event(), threading.Event()
    sync = files.fsync

    def slow(descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            goes_on.wait(PATIENCE / 10)
        sync(descriptor)

    monkeypatch.setattr(files, "fsync", slow)
    other = threading.Thread(target=write_atomically, args=(tmp_path / "offsets.json", b"1"))
    other.start()
    assert begun.wait(PATIENCE)
    write_atomically(tmp_path / "topics.json", b"2")
    assert other.is_alive()
    goes_on.set()
    other.join()
    assert (tmp_path / "offsets.json").read_bytes() == b"1"


def test_a_file_system_without_hard_links_gets_its_bak_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(files, "link", refuse)
    path = tmp_path / "topics.json"
    write_atomically(path, b"1")
    write_atomically(path, b"2")
    assert (tmp_path / "topics.json.bak").read_bytes() == b"1"


@pytest.mark.parametrize("torn", [b"", b"  \n", b'{"a":', b"\x00" * 40])
def test_a_torn_file_is_read_from_its_bak(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "topics.json"
    write_atomically(path, b'{"a":1}')
    write_atomically(path, b'{"a":2}')
    path.write_bytes(torn)
    assert read_with_backup(path, orjson.loads) == {"a": 1}
    if torn.strip():
        assert (tmp_path / "topics.json.broken").read_bytes() == torn


def test_a_missing_file_is_read_from_its_bak(tmp_path: Path) -> None:
    (tmp_path / "topics.json.bak").write_bytes(b"[7]")
    assert read_with_backup(tmp_path / "topics.json", orjson.loads) == [7]


def test_a_disk_that_fails_for_a_moment_does_not_restore_an_older_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"
    write_atomically(path, b"1")
    write_atomically(path, b"2")

    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(files, "read_bytes", fail)
        with pytest.raises(OSError, match="cannot be read now") as raised:
            read_with_backup(path, orjson.loads)
    assert raised.value.filename == str(path)
    assert read_with_backup(path, orjson.loads) == 2


def test_nothing_readable_starts_empty(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    assert read_with_backup(path, orjson.loads) is None
    path.write_bytes(b"{")
    (tmp_path / "topics.json.bak").write_bytes(b"}")
    assert read_with_backup(path, orjson.loads) is None


def test_a_folder_in_the_place_of_the_file_starts_empty(tmp_path: Path) -> None:
    (tmp_path / "topics.json").mkdir()
    assert read_with_backup(tmp_path / "topics.json", orjson.loads) is None


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_that_others_must_not_read_keeps_its_mode(
    tmp_path: Path, mode: int, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr(files, "link", _no_links)
    path = tmp_path / "broker.conf"
    path.write_bytes(b"tlsKeyPassword=1")
    path.chmod(mode)
    leftover = tmp_path / "broker.conf.tmp"
    leftover.write_bytes(b"of a process that was killed")
    leftover.chmod(0o644)
    for content in (b"2", b"3"):
        write_atomically(path, content)
    path.write_bytes(b"torn")
    assert read_with_backup(path, orjson.loads) == 2
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("broker.conf", "broker.conf.bak", "broker.conf.broken"), mode)


def _no_links(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")
