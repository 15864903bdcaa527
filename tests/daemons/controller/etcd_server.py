"""A real etcd for tests: a single member, as far as possible in memory, with short elections."""

import shutil
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.interop.ports import free_port
from tests.interop.process import Process

_ELECTION_MS = 700  # the shortest lease is 1.5 times as long


def require_etcd() -> str:
    """The path of etcd; a test that needs it is skipped where it is not installed."""
    found = shutil.which("etcd")
    if found is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    return found


class EtcdServer(Process):
    """The only member of its cluster. After a kill and a restart it has the same data."""

    def __init__(self, tmp: Path, *more: str) -> None:
        port, peers = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        peer = f"http://127.0.0.1:{peers}"
        command = [
            *(require_etcd(), "--name", "alone", "--data-dir", str(tmp / "etcd")),
            *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"alone={peer}", "--logger", "zap", "--log-level", "warn"),
            *("--heartbeat-interval", "70", "--election-timeout", str(_ELECTION_MS)),
            *more,
        ]
        super().__init__(command, tmp / "etcd-home", "")

    def start(self) -> None:
        super().start()
        self._wait_until_it_answers()

    def wait_for_line(self, text: str, timeout: float = 30, count: int = 1) -> list[str]:
        return [] if not text else super().wait_for_line(text, timeout, count)

    def _wait_until_it_answers(self) -> None:
        import time

        end = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as reply:
                    if b'"true"' in reply.read():
                        return
            except (urllib.error.URLError, OSError):
                pass
            if time.monotonic() > end:
                raise TimeoutError("etcd does not answer:\n" + "\n".join(self.lines[-20:]))
            time.sleep(0.02)
