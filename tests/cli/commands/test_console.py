"""`mq console` as a process: start, signals, stop."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.cli.commands.console import sources
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import CommandError
from mq.daemons.console.config import ConsoleSettings
from tests.cli.support import Mq

READY = re.compile(r"console: (http://\S+) shows (.*)")


@contextmanager
def started(*words: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a console as a process; return it and its address when it is ready."""
    command = [sys.executable, "-m", "mq", *words]
    environment = {**os.environ, "HOME": str(folder), "MQ_CONFIG_DIR": str(folder)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            found = READY.search(line)
            if found:
                yield process, found[1]
                break
        else:
            raise AssertionError("".join(seen))
    finally:
        process.kill()
        process.communicate()


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def test_it_serves_reloads_and_stops_when_told(tmp_path: Path) -> None:
    words = ("console", "-n", "127.0.0.1:9", "--listen", "127.0.0.1:0")
    with started(*words, folder=tmp_path) as (process, address):
        assert "<h1>" in page(address)
        # A page with live updates does not delay the stop.
        process.send_signal(signal.SIGHUP)
        assert "<h1>" in page(address)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0, out
        assert "Traceback" not in out


def test_a_standalone_pair_has_it_beside(tmp_path: Path) -> None:
    words = ("standalone", "--console", "--namesrv-port", "0", "--broker-port", "0")
    with started(*words, "--console-port", "0", folder=tmp_path) as (process, address):
        assert "standalone" in page(address)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_a_folder_that_is_in_use_ends_the_second_with_its_reason(tmp_path: Path) -> None:
    words = ("console", "-n", "127.0.0.1:9", "--listen", "127.0.0.1:0")
    with started(*words, folder=tmp_path), pytest.raises(AssertionError, match="another console"):
        with started(*words, folder=tmp_path):
            pass


def test_contexts_are_clusters_with_their_keys(tmp_path: Path) -> None:
    key = tmp_path / "key.yml"
    key.write_text("accessKey: a\nsecretKey: b\n")
    key.chmod(0o600)
    mq = Mq(tmp_path)
    mq("context", "add", "prod", "-n", "10.0.0.1:9876", "--acl-file", str(key))
    mq("context", "add", "test", "-n", "10.0.0.2:9876")
    environment = Environment.of_process()
    environment.variables = mq.variables
    settings = ConsoleSettings.load(
        None, {"contexts": "prod;test", "readOnlyClusters": "prod", "namesrvAddr": "10.0.0.3:9876"}
    )
    found = {one.name: one for one in sources(environment, settings)}
    assert {n: one.name_servers for n, one in found.items()} == {
        "default": "10.0.0.3:9876",
        "prod": "10.0.0.1:9876",
        "test": "10.0.0.2:9876",
    }
    assert [n for n, one in found.items() if one.options.credentials] == ["prod"]
    assert [n for n, one in found.items() if one.read_only] == ["prod"]
    elsewhere = tmp_path / "clusters.json"
    (tmp_path / "contexts.json").rename(elsewhere)
    settings.console = settings.console.replace(contexts_file=str(elsewhere))
    assert len(sources(environment, settings)) == 3
    key.chmod(0o644)
    with pytest.raises(CommandError, match="readable for other users"):
        sources(environment, settings)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"readOnlyClusters": "default;prdo"}, "no cluster 'prdo' \\(default, prod\\)"),
        ({"contexts": "prod;default"}, "two clusters are named 'default'"),
    ],
)
def test_a_cluster_that_is_not_the_one_that_was_meant_is_named(
    tmp_path: Path, given: dict[str, str], why: str
) -> None:
    mq = Mq(tmp_path)
    for name in ("prod", "default"):
        mq("context", "add", name, "-n", "10.0.0.1:9876")
    environment = Environment.of_process()
    environment.variables = mq.variables
    both = {"contexts": "prod", "namesrvAddr": "10.0.0.3:9876"}
    with pytest.raises(CommandError, match=why):
        sources(environment, ConsoleSettings.load(None, both | given))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--listen", "8082"), "expected HOST:PORT"),
        (("--set", "pathPrefix=mq/"), "pathPrefix"),
        (("--context", "nowhere"), "no context 'nowhere'"),
        (("-n", "x"), "not host:port"),
        ((), "no cluster to show"),
    ],
)
def test_settings_that_cannot_work_are_named(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    refused = Mq(tmp_path)("console", *words)
    assert refused.status != 0
    assert why in refused.err + refused.out


def test_its_settings_are_printed(tmp_path: Path) -> None:
    printed = Mq(tmp_path)("console", "-p", "--read-only", "--prefix", "/mq/")
    assert printed.status == 0
    lines = printed.out.splitlines()
    assert "readOnly=true" in lines and "pathPrefix=/mq" in lines and "listenPort=8082" in lines


def start_seconds(folder: Path) -> float:
    """The time from the start of the process to its first answer; for information, not a test."""
    begun = time.perf_counter()
    words = ("console", "-n", "127.0.0.1:9", "--listen", "127.0.0.1:0")
    with started(*words, folder=folder) as (_, address):
        page(address)
        return time.perf_counter() - begun
