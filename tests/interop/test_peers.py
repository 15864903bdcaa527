"""The test harness itself, the parts that work without a JDK."""

import socket
import sys
from pathlib import Path

import pytest

from tests.interop.jvm import require_java
from tests.interop.ports import free_port
from tests.interop.process import Process


def test_a_missing_jdk_skips_the_test_and_names_the_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"java, javac, mvn not found: apt-get install"):
        require_java()


def test_a_missing_jdk_fails_the_test_if_skips_are_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install"):
        require_java()


def test_a_free_port_has_free_neighbours_for_the_fast_and_the_ha_port() -> None:
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        others = {free_port() for _ in range(20)}
    assert port not in others


def test_a_port_is_not_returned_again_soon() -> None:
    given = [free_port() for _ in range(150)]  # more than twice all ports
    for first in range(len(given) - 20):
        assert len({*given[first : first + 20]}) == 20


def test_a_process_is_ready_at_its_line_and_dead_after_the_block(tmp_path: Path) -> None:
    script = "print('READY now', flush=True); print('got', input(), flush=True); input()"
    with Process([sys.executable, "-c", script], tmp_path / "home", "READY") as process:
        assert process.lines == ["READY now"]
        process.write_line("a line")
        assert process.wait_for_line("got", 10) == ["got a line"]
        pid = process.pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_that_ends_before_it_is_ready_shows_its_output(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", "print('no luck')"], tmp_path, "READY")
    with pytest.raises(TimeoutError, match="no luck"):
        process.start()
