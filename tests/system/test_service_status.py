"""The broker's status in `systemctl status`: whether name servers know it, at first and later."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.ports import free_port
from tests.processes import is_readable
from tests.system.daemon import BrokerProcess

PATIENCE = 30.0


@contextmanager
def name_server(port: int, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "mq", "namesrv", "--set", f"listenPort={port}"]
    command += ["--set", f"kvConfigPath={folder}/kv.json"]
    others = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=others)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_the_status_shows_which_name_servers_do_not_know_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    where = f"127.0.0.1:{port}"
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))

        notes: list[str] = []

        def told(wanted: Callable[[str], object]) -> str:
            while is_readable(manager, PATIENCE):
                note = manager.recv(4096).decode()
                notes.append(note)
                if wanted(note):
                    return note
            raise AssertionError(f"systemd was told {notes}")

        with BrokerProcess(tmp_path / "store", {"namesrvAddr": where}):
            ready = told(lambda note: note.startswith("READY=1\n"))
            found = re.search(r"^STATUS=(.+)$", ready, re.MULTILINE)
            assert found is not None
            assert found[1].endswith(f"; not registered with {where}")
            with name_server(port, tmp_path):
                assert "boot success" in told(lambda note: "not registered" not in note)
            told(lambda note: note.endswith(f"; not registered with {where}"))
