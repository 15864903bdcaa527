"""The README's tour, run again: its commands end well and print what is shown.

Numbers, times, ids and ports differ from run to run and are not compared. The order of lines is
not either: topics come as a set does, messages from four queues in any order. A line `...` in the
README stands for lines that are left out.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
MQ = [sys.executable, "-m", "mq"]
NAME_SERVER_PORT, BROKER_PORT = 9876, 10911  # those that the README shows
LEFT_OUT = "..."
_STEP = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


class Step(NamedTuple):
    """A command of a console block, and the output shown under it."""

    command: str
    output: str


class Ports(NamedTuple):
    name_server: int
    broker: int


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def steps() -> list[Step]:
    return [Step(*step) for block in blocks("console") for step in _STEP.findall(block)]


def shape(line: str) -> str:
    """A line without what differs from run to run."""
    line = re.sub(r"\b(?:[0-9A-F]{2}){16}\b", "ID", line)
    line = re.sub(r"/tmp/mq-standalone-\w+|/\S+(?=/msgbodys/)", "FOLDER", line)
    line = re.sub(r"\d+", "0", line)
    return " ".join(line.split())


def shapes(text: str) -> Counter[str]:
    return Counter(filter(None, map(shape, text.splitlines())))


def for_ports(text: str, ports: Ports) -> str:
    """Text of the README with the ports of this run, in addresses and in offset ids."""
    text = text.replace(f":{NAME_SERVER_PORT}", f":{ports.name_server}")
    return text.replace(f"7F000001{BROKER_PORT:08X}", f"7F000001{ports.broker:08X}")


@contextmanager
def daemon(arguments: list[str], ready: str) -> Iterator[str]:
    """Run a daemon until it prints a line of that pattern, give the line, stop it with SIGTERM."""
    with subprocess.Popen(MQ + arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        try:
            for line in process.stdout:
                lines.append(line)
                if re.search(ready, line):
                    break
            else:
                pytest.fail(f"mq {arguments[0]} ended before it was ready: {lines}")
            yield line
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        assert process.returncode == 0


def run(step: Step, ports: Ports, folder: Path) -> str:
    """Run a command of the README in a folder; returns its output."""
    program, *arguments = shlex.split(for_ports(step.command, ports))
    command = {"mq": MQ, "python": [sys.executable]}[program] + arguments
    variables = {
        **os.environ,
        "NAMESRV_ADDR": f"127.0.0.1:{ports.name_server}",
        "MQ_CONFIG_DIR": str(folder / "config"),
        "MQ_STATE_DIR": str(folder / "state"),
    }
    ended = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, f"{step.command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def test_the_tour_still_prints_what_the_readme_shows(tmp_path: Path) -> None:
    start, *others = steps()
    assert start.command == "mq standalone"
    assert len(others) >= 8
    (program,) = blocks("python")
    with daemon(["standalone", "--namesrv-port", "0", "--broker-port", "0"], "Talk to it") as ready:
        assert shape(ready) == shape(start.output.splitlines()[-1])
        found = re.search(r"name server [0-9.]+:(\d+), broker [0-9.]+:(\d+)", ready)
        assert found is not None
        ports = Ports(int(found[1]), int(found[2]))
        (tmp_path / "orders.py").write_text(for_ports(program, ports), encoding="utf-8")
        for step in others:
            wanted = shapes(step.output)
            printed = shapes(run(step, ports, tmp_path))
            missing = wanted - printed - Counter({LEFT_OUT: 1})
            assert not missing, step.command
            assert LEFT_OUT in wanted or printed == wanted, step.command


def test_the_daemons_start_with_the_properties_shown(tmp_path: Path) -> None:
    for text in blocks("properties"):
        name = re.match(r"# (\S+)\n", text)
        assert name is not None
        for shown, here in (("0.0.0.0", "127.0.0.1"), ("10.0.0.5", "127.0.0.1")):
            text = text.replace(shown, here)
        (tmp_path / name[1]).write_text(text.replace("/var/lib/mq", str(tmp_path)))
    commands = dict(re.findall(r"^mq (namesrv|broker) -c (\S+)$", TEXT, re.MULTILINE))
    name_server = ["namesrv", "-c", str(tmp_path / commands["namesrv"]), "--set", "listenPort=0"]
    with daemon(name_server, "boot success") as line:
        address = line.split()[-1]
        broker = ["broker", "-c", str(tmp_path / commands["broker"]), "--set", "listenPort=0"]
        with daemon([*broker, "-n", address], "registered with name server") as registered:
            assert address in registered
        assert (tmp_path / "store" / "checkpoint").stat().st_size == 4096


def test_every_folder_and_document_named_is_there() -> None:
    folders = re.findall(r"^\| `(\w+)/` \|", TEXT, re.MULTILINE)
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert folders and links
    assert [name for name in folders + links if not (ROOT / name).exists()] == []
