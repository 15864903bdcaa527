"""Daemons run in processes of their own here: signals, statuses, the service manager, the log."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.daemons.service import PeerRateLimit
from mq.protocol.command import Command
from mq.protocol.frame import encode
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
    """A name server in a process of its own."""

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
            assert peer.recv(4)  # the connection is there
            peer.sendall(b"\0\0\0")  # the beginning of a frame
            child.process.send_signal(signal.SIGUSR1)
            child.line("state: begin")
            child.line("state: listener main 127.0.0.1:")
            child.line("state: topics: 0")
            child.line("state: task expiry of brokers: NameServer._expire:")
            child.line("state: end")
        child.process.terminate()
        assert child.status() == 0


def test_a_task_that_fails_is_told_and_does_not_stop_the_daemon(tmp_path: Path) -> None:
    with Child(tmp_path, "0", "fail") as child:
        child.line("task failing failed: RuntimeError: as the test wants it")
        child.line("Traceback")
        child.line("RuntimeError: as the test wants it")
        child.line("task failing failed")  # it has begun again
        child.process.terminate()
        assert child.status() == 0


def test_a_taken_port_is_said_in_one_line_with_status_71(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Child(tmp_path, str(port)) as child:
            assert child.status() == 71
            text = "".join(child.lines)
            assert f"cannot listen on 127.0.0.1:{port}: another process does already\n" in text
            assert "Traceback" not in text


def test_a_bad_setting_is_said_in_one_line_with_status_78(tmp_path: Path) -> None:
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
    """What a daemon has told up to a note that begins with `last`."""
    told: list[bytes] = []
    while not (told and told[-1].startswith(last)):
        assert is_readable(manager, 30), told
        told.append(manager.recv(4096))
    return told


def test_the_service_manager_is_told_of_readiness_life_and_stop(
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


def test_a_peer_gets_one_line_a_second_and_the_next_one_counts_the_others() -> None:
    now = 100.0
    limit = PeerRateLimit(lambda: now)

    def passes(peer: str | None, text: str = "bad %s") -> str | None:
        extra = {} if peer is None else {"peer": peer}
        record = logging.makeLogRecord({"msg": text, "args": ("frame",), **extra})
        return record.getMessage() if limit.filter(record) else None

    assert passes("10.0.0.1:5") == "bad frame"
    assert [passes("10.0.0.1:5") for _ in range(3)] == [None] * 3
    assert passes("10.0.0.2:5") == "bad frame"
    assert passes(None) == passes(None) == "bad frame"
    now += 1.0
    assert passes("10.0.0.1:5") == "bad frame (3 more of 10.0.0.1:5 not logged)"


def test_the_rate_limit_forgets_the_oldest_of_very_many_peers() -> None:
    limit = PeerRateLimit(lambda: 100.0)
    for number in range(limit.LIMIT + 100):
        assert limit.filter(logging.makeLogRecord({"peer": str(number)}))
    assert len(limit._last) == limit.LIMIT
