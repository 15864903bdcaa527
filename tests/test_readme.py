"""Statements of the README about daemons and folders. tests/test_docs.py runs its tour."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
MQ = [sys.executable, "-m", "mq"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@contextmanager
def daemon(arguments: list[str], ready: str) -> Iterator[str]:
    """Run a daemon until it prints a line with that pattern; stop it with SIGTERM."""
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


def test_every_named_folder_and_document_exists() -> None:
    folders = re.findall(r"^\| `(\w+)/` \|", TEXT, re.MULTILINE)
    links = re.findall(r"\]\(([^)#]+)#?([^)]*)\)", TEXT)
    assert folders and links
    names = [*folders, *(name for name, _ in links)]
    assert [name for name in names if not (ROOT / name).exists()] == []
    for name, heading in links:
        if heading:
            titles = re.findall(r"^#+ (.*)$", (ROOT / name).read_text("utf-8"), re.MULTILINE)
            assert heading in {title.lower().replace(" ", "-") for title in titles}, name
