"""Real daemons as processes, for tests that kill them."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.interop.ports import free_port
from tests.processes import stand_still

_START_SECONDS = 60.0


class DaemonProcess:
    """`mq WORD` with these settings.

    ``address`` is known when `start` returns. Ending a `with` block kills it.
    """

    word = ""
    ready = re.compile("")  # its first group is the address

    def __init__(
        self,
        log_path: Path,
        settings: Mapping[str, str],
        *,
        preload: Path | None = None,
        file_size_limit: int | None = None,
    ) -> None:
        self.address = ""
        self.log_path = log_path
        self._settings = settings
        self._preload = preload
        self._file_size_limit = file_size_limit
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it serves. Raises AssertionError with its log if it does not."""
        command = [sys.executable, "-m", "mq", self.word]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        environment = dict(os.environ)
        if self._preload is not None:
            environment["LD_PRELOAD"] = str(self._preload)
        limit = self._file_size_limit
        if limit is not None:  # no truncated compiled module must be left there
            environment["PYTHONDONTWRITEBYTECODE"] = "1"

        def limit_files() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with open(self.log_path, "ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, preexec_fn=limit_files
            )
        self.address = self._wait_until_ready(begin)

    def _wait_until_ready(self, begin: int) -> str:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            text = self.log_path.read_bytes()[begin:].decode()
            found = self.ready.search(text)
            if found is not None:
                return found[1]
            if self._process.poll() is not None:
                raise AssertionError(
                    f"mq {self.word} ended with {self._process.returncode}:\n{text}"
                )
            time.sleep(0.01)  # its log is a file: there is no event
        raise AssertionError(f"mq {self.word} did not start in {_START_SECONDS} s:\n{text}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def pause(self) -> None:
        """Suspend it (SIGSTOP): the kernel continues to acknowledge arriving data."""
        stand_still(self.pid)

    def go_on(self) -> None:
        """Resume it."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, as `kill -9` and the out-of-memory killer send it. Idempotent."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait for the exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        return process.wait(30)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class BrokerProcess(DaemonProcess):
    """`mq broker` on a store, on loopback, with a port that is reserved while the broker is down.

    With another port after each start, the broker of another test might get the old one, and
    acknowledge messages that senders still send there.
    """

    word = "broker"
    ready = re.compile(r"The broker\[[^,]+, ([0-9.:]+)\] boot success")

    def __init__(
        self,
        store: Path,
        settings: Mapping[str, str] | None = None,
        *,
        preload: Path | None = None,
        file_size_limit: int | None = None,
    ) -> None:
        super().__init__(
            store.parent / f"{store.name}.log",
            {
                "brokerIP1": "127.0.0.1",
                "listenPort": str(free_port()),
                "storePathRootDir": str(store),
                **(settings or {}),
            },
            preload=preload,
            file_size_limit=file_size_limit,
        )
        self.store = store


class ControllerProcess(DaemonProcess):
    """`mq controller` with its state in an etcd, on loopback."""

    word = "controller"
    ready = re.compile(
        r"The Controller Server boot success\. serializeType=JSON, address ([0-9.:]+)"
    )

    def __init__(self, log: Path, etcd: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(
            log,
            {
                "bindAddress": "127.0.0.1",
                "listenPort": "0",
                "etcdEndpoints": etcd,
                **(settings or {}),
            },
        )


class NameServerProcess(DaemonProcess):
    """`mq namesrv` with its files in a folder, on loopback."""

    word = "namesrv"
    ready = re.compile(r"The Name Server boot success\. serializeType=JSON, address ([0-9.:]+)")

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(
            folder.parent / f"{folder.name}.log",
            {
                "bindAddress": "127.0.0.1",
                "listenPort": "0",
                "kvConfigPath": str(folder / "kvConfig.json"),
                **(settings or {}),
            },
        )


class SnodeProcess(DaemonProcess):
    """`mq snode` on loopback, in front of the brokers of a name server."""

    word = "snode"
    ready = re.compile(r"The snode\[[^,]+, ([0-9.:]+)\] boot success")

    def __init__(
        self, log: Path, name_server: str, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            log,
            {
                **{"snodeIP1": "127.0.0.1", "listenPort": "0", "metricsEnable": "false"},
                **{"snodeName": "snode-a", "namesrvAddr": name_server},
                **(settings or {}),
            },
        )
