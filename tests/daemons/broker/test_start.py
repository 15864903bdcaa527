"""The output of a broker that cannot start: one line and an exit status, without a stack trace."""

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mq.daemons.broker.store.message_store import MessageStore
from tests.daemons.broker.store.stores import put, with_store


def start(root: Path, settings: Mapping[str, str] = {}) -> tuple[int, str]:
    """Status and last line of a broker that ends without a signal."""
    items = {"storePathRootDir": str(root), "listenPort": "0", **settings}
    arguments = [word for key, value in items.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "mq", "broker", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.returncode, ended.stdout.splitlines()[-1]


def test_a_store_in_use_is_named(tmp_path: Path) -> None:
    async def start_another(_: MessageStore) -> tuple[int, str]:
        return start(tmp_path)

    status, line = with_store(tmp_path, start_another)
    assert status == 78
    assert line.endswith(
        f"{tmp_path} is in use by another broker: stop it, or set storePathRootDir"
    )


def test_a_log_of_another_file_size_is_named(tmp_path: Path) -> None:
    async def fill(store: MessageStore) -> None:
        await put(store, "Orders", 0, b"a chair")

    with_store(tmp_path, fill)
    status, line = start(tmp_path, {"mappedFileSizeCommitLog": "8192"})
    assert status == 78
    assert "4096 bytes, mappedFileSizeCommitLog is 8192" in line


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    status, line = start(tmp_path / "file" / "store")
    assert status == 71
    assert f"{tmp_path}/file/store: Not a directory" in line


def test_a_taken_replication_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, line = start(tmp_path, {"haListenPort": str(port)})
    assert status == 71
    assert f"cannot listen on 127.0.0.1:{port} (haListenPort): another process does" in line
    assert not list(tmp_path.iterdir())
