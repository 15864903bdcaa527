"""Several processes under one supervisor: stopping them, whatever they do."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from mq.daemons.instances.child import Notices

_SUPERVISOR = """
import json, sys
from mq.daemons.instances.supervisor import Instances
from mq.daemons.service import run
commands = json.loads(sys.argv[1])
sys.exit(run(lambda: Instances("brokers", commands, ["serves", "hangs"])))
"""
_SERVES = """
import os, signal, socket
ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ready.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
signal.pause()
"""
_HANGS = """
import os, signal
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


def await_end(process: int) -> None:
    """Wait until it is dead; the kernel ends a killed process a moment after the signal."""
    with suppress(ProcessLookupError), ExitStack() as opened:
        descriptor = os.pidfd_open(process)
        opened.callback(os.close, descriptor)
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        assert ended.poll(20_000), f"process {process} lives"


def test_sigterm_before_one_has_started_stops_all_of_them(tmp_path: Path) -> None:
    late = tmp_path / "late"
    sources = {"serves": _SERVES, "hangs": _HANGS, "late": f"open({str(late)!r}, 'w').close()"}
    commands = {name: [sys.executable, "-c", source] for name, source in sources.items()}
    ended = subprocess.run(
        [sys.executable, "-c", _SUPERVISOR, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.endswith(" stopped\n")
    assert not late.exists()


_IGNORES = """
import os, signal, socket
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("process", os.getpid(), flush=True)
ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ready.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
while True:
    signal.pause()
"""


def test_a_second_sigterm_ends_one_that_ignores_the_first(tmp_path: Path) -> None:
    commands = {"serves": [sys.executable, "-c", _IGNORES]}
    supervisor = _SUPERVISOR.replace('["serves", "hangs"]', "[]")
    with subprocess.Popen(
        [sys.executable, "-c", supervisor, json.dumps(commands)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        child = 0
        for line in process.stdout:
            if line.startswith("process "):
                child = int(line.split()[1])
            if "1 of 1 brokers serve" in line:
                process.send_signal(signal.SIGTERM)
            if "SIGTERM: stopping" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 70
    assert child
    await_end(child)


_FAILS_ONCE = """
import pathlib, signal, sys
first, second = map(pathlib.Path, sys.argv[1:])
if not first.exists():
    first.touch()
    sys.exit(71)
second.touch()
signal.pause()
"""
_SERVES_LATE = """
import os, pathlib, signal, socket, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ready.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
signal.pause()
"""


def test_a_restart_while_others_start_is_reported_as_an_end(
    tmp_path: Path,
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    commands = {
        "late": [sys.executable, "-c", _SERVES_LATE, second],
        "fails": [sys.executable, "-c", _FAILS_ONCE, first, second],
    }
    supervisor = _SUPERVISOR.replace('["serves", "hangs"]', "[]")
    with subprocess.Popen(
        [sys.executable, "-c", supervisor, json.dumps(commands)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        told = next(line for line in process.stdout if "of 2 brokers serve" in line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "1 of 2 brokers serve: late; fails has ended, and is started again" in told


def test_notifications_of_a_dead_child_do_not_count_for_the_next(tmp_path: Path) -> None:
    """It fills the socket and is killed in the middle of a message: the rest is not read."""

    async def main() -> None:
        heard = []
        path = tmp_path / "notices"
        for life in range(2):
            with Notices(path, lambda name, value: heard.append((life, value))):  # noqa: B023
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as child:
                    child.sendto(b"STATUS=%d" % life, str(path))
                    if life:
                        await asyncio.sleep(0.05)
        assert heard == [(1, "1")]

    asyncio.run(main())
