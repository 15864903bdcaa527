"""`mq shutdown`. It finds the daemons of a test, and no others of this machine."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mq.cli.machine import processes
from tests.cli.support import Mq
from tests.processes import stand_still


class Machine:
    """The daemons of a test; `proc` has them alone."""

    def __init__(self, folder: Path, parts: ExitStack) -> None:
        self.folder = folder
        self.proc = folder / "proc"
        self.proc.mkdir()
        self._parts = parts

    def start(self, *words: str, wrapper: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        """Run a daemon until it serves."""
        command = [*wrapper, sys.executable, *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._parts.callback(self._end, process)
        assert process.stdout is not None
        for line in process.stdout:
            if "boot success" in line or line == "ready\n":
                break
        (self.proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        return process

    def name_server(self, name: str, *wrapper: str) -> "subprocess.Popen[str]":
        file = self.folder / f"{name}.conf"
        file.write_text(f"listenPort=0\nkvConfigPath={self.folder}/{name}.json\n")
        return self.start("-m", "mq", "namesrv", "-c", str(file), wrapper=wrapper)

    def _end(self, process: "subprocess.Popen[str]") -> None:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with ExitStack() as parts:
        found = Machine(tmp_path, parts)
        monkeypatch.setattr(processes, "PROC", found.proc)
        yield found


def test_a_daemon_is_stopped_with_the_words_of_mqshutdown(mq: Mq, machine: Machine) -> None:
    server = machine.name_server("one")
    assert mq("shutdown", "broker").status == 66
    assert server.poll() is None
    finished = mq("shutdown", "namesrv", "--wait", "60")
    assert (finished.status, finished.out, finished.err) == (
        0,
        f"The mqnamesrv({server.pid}) is running...\n"
        f"Send shutdown request to mqnamesrv({server.pid}) OK\n",
        "",
    )
    assert server.wait(60) == 0


def test_where_none_runs_that_is_said_with_a_status(mq: Mq, machine: Machine) -> None:
    for daemon in ("broker", "namesrv"):
        finished = mq("shutdown", daemon)
        assert (finished.status, finished.out) == (66, "")
        assert finished.err == f"mq shutdown: No mq{daemon} running.\n"
    wrong = mq("shutdown", "proxy")
    assert (wrong.status, wrong.out) == (64, "")


def test_several_are_told_and_one_can_be_chosen(mq: Mq, machine: Machine) -> None:
    servers = [machine.name_server(name) for name in ("one", "two", "three")]
    pids = [server.pid for server in servers]
    shown = mq("shutdown", "namesrv", "--dry-run")
    assert shown.status == 0
    assert all(f"mqnamesrv({pid})" in shown.out + shown.err for pid in pids)
    assert [server.poll() for server in servers] == [None] * 3
    chosen = mq("shutdown", "namesrv", "--pid", str(pids[1]), "--wait", "60", "-o", "json")
    (row,) = chosen.json["data"]
    assert (row["pid"], row["daemon"], row["ended"]) == (pids[1], "namesrv", True)
    assert row["arguments"] == f"-c {machine.folder}/two.conf"
    assert servers[1].wait(60) == 0
    (machine.proc / str(pids[1])).unlink()
    left = sorted((pids[0], pids[2]))
    rest = mq("shutdown", "namesrv", "--wait", "60")
    assert f"mqnamesrv({left[0]} {left[1]}) is running" in rest.out
    assert rest.status == 0
    assert [servers[0].wait(60), servers[2].wait(60)] == [0, 0]


def test_one_that_does_not_end_in_time_is_no_success(mq: Mq, machine: Machine) -> None:
    server = machine.name_server("one")
    stand_still(server.pid)
    finished = mq("shutdown", "namesrv", "--wait", "0.1")
    assert finished.status == 75
    assert f"mqnamesrv({server.pid}) is still running after 0.1 s" in finished.err


@pytest.mark.parametrize(
    "words",
    [
        ("mq", "shutdown", "namesrv"),
        ("vi", "/etc/mq", "namesrv"),
        ("namesrv",),
        ("mq", "namesrv-of-mine"),
        ("-m", "mq", "namesrv"),
    ],
)
def test_what_is_no_daemon_is_left_alone(mq: Mq, machine: Machine, words: tuple[str, ...]) -> None:
    script = "import sys, time; print('ready', flush=True); time.sleep(60)"
    other = machine.start("-c", script, *words)
    assert mq("shutdown", "namesrv").status == 66
    assert other.poll() is None


def test_a_daemon_in_a_container_is_left_to_it(mq: Mq, machine: Machine) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("no namespaces of processes can be made here")
    outer = machine.name_server("one", *unshare)
    (machine.proc / str(outer.pid)).unlink()
    (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    (machine.proc / inner).symlink_to(f"/proc/{inner}")
    finished = mq("shutdown", "namesrv")
    assert (finished.status, finished.out) == (66, "")
    assert "1 of other users or in containers" in finished.err
    assert outer.poll() is None


@pytest.mark.parametrize(
    "words",
    [
        ["/opt/mq/bin/python3.12", "/opt/mq/bin/mq"],
        ["python", "-P", "-X", "dev", "-m", "mq"],
        ["/usr/bin/mq"],
    ],
)
def test_a_daemon_is_known_however_it_was_started(words: list[str]) -> None:
    assert processes._after_mq([*words, "broker", "-c", "a.conf"]) == ["broker", "-c", "a.conf"]
