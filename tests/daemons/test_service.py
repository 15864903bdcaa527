"""Daemons in their own processes: signals, exit statuses, the service manager, the log."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests.interop.ports import free_port
from tests.processes import is_readable

NAME_SERVER = """
import sys
from pathlib import Path
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.service import run

settings = {"listenPort": sys.argv[2], "kvConfigPath": sys.argv[1] + "/kv.json"}
class Server(NameServer):
    async def __aenter__(self):
        await super().__aenter__()
        if "fail" in sys.argv:
            async def fail():
                raise RuntimeError("as the test wants it")
            self.tasks.spawn(fail, "failing")
        return self
sys.exit(run(lambda: Server(NamesrvSettings.load(None, settings))))
"""


class Child:
    """A name server in its own process."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", NAME_SERVER, str(folder), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.lines: list[str] = []

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def line(self, text: str) -> str:
        """The next line of output that contains `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"no {text!r} in:\n{''.join(self.lines)}")

    def status(self) -> int:
        assert self.process.stdout is not None
        self.lines += self.process.stdout.readlines()
        return self.process.wait(30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_daemon_with_status_0(tmp_path: Path, number: signal.Signals) -> None:
    with Child(tmp_path, "0") as child:
        child.line("The Name Server boot success")
        child.process.send_signal(number)
        assert child.status() == 0
        assert f"{number.name}: stopping" in "".join(child.lines)
        assert "failed" not in "".join(child.lines)


def test_a_hangup_stops_nothing(tmp_path: Path) -> None:
    with Child(tmp_path, "0") as child:
        child.line("boot success")
        child.process.send_signal(signal.SIGHUP)
        child.line("SIGHUP")
        child.process.terminate()
        assert child.status() == 0


def test_a_user_signal_dumps_the_state_and_stops_nothing(tmp_path: Path) -> None:
    with Child(tmp_path, "0") as child:
        port = child.line("boot success").rpartition(":")[2].strip()
        with socket.create_connection(("127.0.0.1", int(port))) as peer:
            peer.sendall(encode(Command(99999)))
            assert peer.recv(4)  # the connection is open
            peer.sendall(b"\0\0\0")  # the beginning of a frame
            child.process.send_signal(signal.SIGUSR1)
            child.line("state: begin")
            child.line("state: listener main 127.0.0.1:")
            child.line("state: topics: 0")
            child.line("state: task expiry of brokers: NameServer._expire:")
            child.line("state: end")
        child.process.terminate()
        assert child.status() == 0


def test_a_task_that_fails_is_logged_and_does_not_stop_the_daemon(tmp_path: Path) -> None:
    with Child(tmp_path, "0", "fail") as child:
        child.line("task failing failed: RuntimeError: as the test wants it")
        child.line("Traceback")
        child.line("RuntimeError: as the test wants it")
        child.line("task failing failed")  # it has been restarted
        child.process.terminate()
        assert child.status() == 0


def test_a_taken_port_is_reported_in_one_line_with_status_71(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Child(tmp_path, str(port)) as child:
            assert child.status() == 71
            text = "".join(child.lines)
            assert f"cannot listen on 127.0.0.1:{port}: another process does already\n" in text
            assert "Traceback" not in text


def test_a_bad_setting_is_reported_in_one_line_with_status_78(tmp_path: Path) -> None:
    with Child(tmp_path, "70000") as child:
        assert child.status() == 78
        text = "".join(child.lines)
        assert "listenPort=70000: expected 0 to 65535" in text and "Traceback" not in text


def test_the_log_may_be_json(tmp_path: Path) -> None:
    with Child(tmp_path, "0", MQ_LOG_FORMAT="json") as child:
        entry = json.loads(child.line("boot success"))
        assert (entry["level"], entry["logger"]) == ("INFO", "mq.daemons.service")
        assert entry["time"] > 1.7e9


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        yield sock


def notes(manager: socket.socket, last: bytes) -> list[bytes]:
    """The notifications of a daemon until one that begins with `last`."""
    told: list[bytes] = []
    while not (told and told[-1].startswith(last)):
        assert is_readable(manager, 30), told
        told.append(manager.recv(4096))
    return told


def test_the_service_manager_is_notified_of_readiness_life_and_stop(
    tmp_path: Path, manager: socket.socket
) -> None:
    with Child(
        tmp_path, "0", NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="100000"
    ) as child:
        assert notes(manager, b"READY=1")[-1].startswith(b"READY=1\nSTATUS=The Name Server boot")
        notes(manager, b"WATCHDOG=1")
        notes(manager, b"WATCHDOG=1")
        child.process.terminate()
        notes(manager, b"STOPPING=1")
        assert child.status() == 0


def test_an_unread_pipe_blocks_neither_the_daemon_nor_its_stop(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)  # less than the output of a start
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", NAME_SERVER, str(tmp_path), str(port)], stdout=writing
    )
    os.close(writing)
    try:
        with connected(port) as peer:
            peer.sendall(encode(Command(99999)))
            assert peer.recv(4)
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)


def connected(port: int) -> socket.socket:
    """A connection to a daemon that starts."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 30)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_text_of_a_peer_begins_no_line_of_the_log(tmp_path: Path) -> None:
    with Child(tmp_path, "0") as child:
        port = child.line("boot success").rpartition(":")[2].strip()
        forged = "b\n2026-01-01 00:00:00,000 CRITICAL mq.daemons.service forged\x1b[2J\u202e"
        header = {"brokerName": forged, "brokerAddr": "127.0.0.1:1", "clusterName": "c"}
        header |= {"haServerAddr": "127.0.0.1:2", "brokerId": "0"}
        with socket.create_connection(("127.0.0.1", int(port))) as peer:
            peer.sendall(encode(Command(RequestCode.REGISTER_BROKER, header)))
            assert peer.recv(4)
        child.process.terminate()
        assert child.status() == 0
    text = "".join(child.lines)
    assert "b\\n2026-01-01 00:00:00,000 CRITICAL" in text
    assert "\n2026-01-01" not in text
    assert not {"\x1b", "\u202e"} & {*text}
