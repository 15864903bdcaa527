"""`mq broker --instances`: real brokers as processes under one command."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Mq
from tests.processes import stand_still
from tests.system.daemon import NameServerProcess

pytestmark = pytest.mark.timeout(120)

_SERVES = re.compile(r"(\d) of (\d) brokers serve: ")


class Several:
    """`mq broker --instances N` with its output lines, on free ports."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        settings = ("listenPort=0", f"storePathRootDir={folder}/store", "brokerName=b")
        command = [sys.executable, "-m", "mq", "broker", *words]
        for setting in settings:
            command += ["--set", setting]
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> "Several":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def line(self, *texts: str) -> str:
        """The next line that contains all of these."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if all(text in line for text in texts):
                return line
        raise AssertionError(f"it ended without {texts}:\n{''.join(self.lines)}")

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(number) for number in found.split()]


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    with NameServerProcess(
        tmp_path / "namesrv.log",
        {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")},
    ) as process:
        yield process.address


def test_four_brokers_serve_and_a_killed_one_is_restarted_alone(
    tmp_path: Path, name_server: str
) -> None:
    with Several(tmp_path, "--instances", "4", "-n", name_server) as several:
        several.line("4 of 4 brokers serve: b, b-2, b-3, b-4")
        clusters = Mq(tmp_path)("clusterList", "-n", name_server, "-o", "json").json
        assert {row["brokerName"] for row in clusters["data"]} == {"b", "b-2", "b-3", "b-4"}
        before = several.children()
        os.kill(before[1], signal.SIGKILL)
        several.line("b-2 was ended by SIGKILL; restarting in 0.1 s")
        several.line("[b-2]", "boot success")
        after = several.children()
        assert len(set(before) & set(after)) == 3
        assert len(after) == 4
        several.process.send_signal(signal.SIGTERM)
        assert several.process.wait(30) == 0
        for folder in ("store", "store-b-2", "store-b-3", "store-b-4"):
            assert (tmp_path / folder / "commitlog").is_dir()
            assert not (tmp_path / folder / "abort").exists()  # a clean stop


def test_the_brokers_end_with_their_parent_process(tmp_path: Path) -> None:
    with Several(tmp_path, "--instances", "2") as several:
        several.line("2 of 2 brokers serve")
        several.process.kill()
        assert several.process.stdout is not None
        rest = several.process.stdout.read()  # until both have closed it
        assert rest.count("the parent process has ended; stopping") == 2
        assert rest.count("stopped") == 2


def test_a_stop_of_the_whole_unit_is_clean(tmp_path: Path) -> None:
    with Several(tmp_path, "--instances", "2") as several:
        several.line("2 of 2 brokers serve")
        # All at once, as systemd does: none sees another one end before it gets its own signal.
        stand_still(several.process.pid)
        for process in (*several.children(), several.process.pid):
            os.kill(process, signal.SIGTERM)
        os.kill(several.process.pid, signal.SIGCONT)
        assert several.process.wait(30) == 0
        assert several.process.stdout is not None
        assert several.process.stdout.read().count(" stopped\n") == 3
        assert not list(tmp_path.glob("store*/abort"))


def test_an_unusable_store_of_one_broker_does_not_affect_the_others(tmp_path: Path) -> None:
    (tmp_path / "store-b-2").write_text("not a folder")
    with Several(tmp_path, "--instances", "2", MQ_LOG_FORMAT="json") as several:
        # The other one may serve before this one has ended: then that is reported first.
        several.line("1 of 2 brokers serve: b; b-2 has ended")
        told = [json.loads(line) for line in several.lines if line.startswith("{")]
        assert any(one.get("daemon") == "b-2" and one["level"] == "CRITICAL" for one in told)
        (tmp_path / "store-b-2").unlink()
        several.process.send_signal(signal.SIGHUP)
        several.line('"daemon": "b-2"', "boot success")


def test_when_none_can_serve_the_command_ends_with_the_reason(tmp_path: Path) -> None:
    for folder in ("store", "store-b-2"):
        (tmp_path / folder).write_text("not a folder")
    with Several(tmp_path, "--instances", "2") as several:
        several.line("none of the brokers serves: b ended with status", "b-2 ended with status")
        assert several.process.wait(30) in (71, 78)


def test_a_broker_with_a_blocked_event_loop_is_aborted_and_restarted(tmp_path: Path) -> None:
    manager = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(manager))
        words = {"NOTIFY_SOCKET": str(manager), "WATCHDOG_USEC": "3000000"}
        with Several(tmp_path, "--instances", "2", **words) as several:
            several.line("2 of 2 brokers serve")
            stuck = several.children()[0]
            stand_still(stuck)
            several.line("has not run for 3 s; aborting it")
            several.line("was ended by SIGKILL")  # a suspended process takes no other signal
            several.line("boot success")
            told.settimeout(10)
            assert told.recv(4096).startswith(b"READY=1\nSTATUS=2 of 2 brokers serve")


def test_settings_are_shown_by_section(tmp_path: Path) -> None:
    file = tmp_path / "b.conf"
    file.write_text("fileReservedTime=7\n[one]\n[two]\nfileReservedTime=8\n")
    shown = Mq(tmp_path)("broker", "-c", str(file), "-p")
    assert shown.status == 0
    first, second = re.split(r"^\[two\]\n", shown.out, flags=re.MULTILINE)
    assert first.startswith("[one]\n")
    assert "\nfileReservedTime=7\n" in first
    assert "\nfileReservedTime=8\n" in second
    alone = Mq(tmp_path)("broker", "-c", str(file), "-p", "--instance", "two")
    assert alone.out == second
    unknown = Mq(tmp_path)("broker", "-c", str(file), "-p", "--instance", "three")
    assert unknown.status == 64
    assert "--instance three: no such broker; known: one, two" in unknown.err


def test_a_broker_ended_by_an_unnamed_signal_is_restarted(tmp_path: Path) -> None:
    with Several(tmp_path, "--instances", "2") as several:
        several.line("2 of 2 brokers serve")
        os.kill(several.children()[0], signal.SIGRTMIN + 5)
        several.line(f"was ended by signal {signal.SIGRTMIN + 5}; restarting")
        several.line("boot success")


def test_a_store_still_in_use_by_an_earlier_process_is_retried(tmp_path: Path) -> None:
    with Several(tmp_path, "--instances", "2") as earlier:
        earlier.line("2 of 2 brokers serve")
        slow = earlier.children()[0]
        stand_still(slow)  # its stop takes long
        earlier.process.kill()
        with Several(tmp_path, "--instances", "2") as several:
            several.line("is in use by another broker")
            several.line("ended with status 75; restarting")
            os.kill(slow, signal.SIGCONT)
            several.line("boot success", "[b]")
