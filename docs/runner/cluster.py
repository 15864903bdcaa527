"""The name server and the brokers of a page: real daemons on free ports of loopback.

A broker whose name is in parentheses has a configuration, but is not started. `etcd` and
`controller` stand for an etcd and a controller; the controller is not started either.

Pages show the default ports and the paths of docs/operations.md; `Cluster` replaces them in
commands by those of this run, and vice versa in output.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from docs.runner.forker import PROGRAMS, Forked, Forker
from mq.testing import free_ports

NAME_SERVER_PORT = 9876
BROKER_PORTS = (10911, 10921, 10931)
CONTROLLER_PORT = 9878
ETCD_PORT = 2379
_NAME_SERVER = "name server"
_READY = re.compile(r"boot success|Talk to it")
_RELOADS = "SIGHUP: reloading files"
_STOP_SECONDS = 60
# Some pages read whole logs, and copy them: a gigabyte, the default, would take seconds each time.
_LOG_FILE_BYTES = 16 << 20
_UNITS = {"mq-namesrv": _NAME_SERVER, "mq-controller": "controller"}


class Daemon:
    """A process that runs until it is stopped. `start` returns its output until it is ready."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        forker: Forker,
        ready: re.Pattern[str] = _READY,
    ) -> None:
        self._arguments = list(arguments)
        self._environment = environment
        self._forker = forker
        self._ready = ready
        self._process: subprocess.Popen[str] | Forked | None = None
        self._reader: threading.Thread | None = None
        self._reloads = threading.Event()

    def __str__(self) -> str:
        return shlex.join(["mq", *self._arguments])

    def start(self, *more: str) -> list[str]:
        self._process = process = self._begin(more)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if self._ready.search(line):
                # Its further output is read and dropped, so that it never blocks.
                self._reader = threading.Thread(target=self._read_on, args=[process.stdout])
                self._reader.start()
                return lines
        process.wait()
        process.stdout.close()
        raise RuntimeError(f"{self} did not start: {lines}")

    def _begin(self, more: Sequence[str]) -> "subprocess.Popen[str] | Forked":
        return self._forker.start(["mq", *self._arguments, *more], self._environment)

    def _read_on(self, output: IO[str]) -> None:
        for line in output:
            if _RELOADS in line:
                self._reloads.set()

    def reload(self) -> None:
        """Send it SIGHUP, and wait until it reports that it reloads its files."""
        assert self._process is not None
        self._reloads.clear()
        self._process.send_signal(signal.SIGHUP)
        if not self._reloads.wait(_STOP_SECONDS):
            raise RuntimeError(f"{self} does not react to SIGHUP")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        finally:
            process.kill()
            process.wait()
            if self._reader is not None and process.stdout is not None:
                self._reader.join()
                process.stdout.close()


class Etcd(Daemon):
    """A single etcd, if it is installed (Debian: etcd-server)."""

    def __init__(self, folder: Path, forker: Forker) -> None:
        self.port, peers = free_ports()
        own, peer = (f"http://127.0.0.1:{port}" for port in (self.port, peers))
        arguments = [
            "etcd",
            *("--name", "alone", "--data-dir", str(folder), "--log-level", "info"),
            *("--listen-client-urls", own, "--advertise-client-urls", own),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"alone={peer}"),
        ]
        super().__init__(arguments, os.environ, forker, re.compile("ready to serve client"))

    def __str__(self) -> str:
        return shlex.join(self._arguments)

    def _begin(self, more: Sequence[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self._arguments, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )


class Cluster:
    """A context manager: a folder for everything, a name server and brokers with these names."""

    def __init__(
        self, folder: Path, brokers: Sequence[str], settings: Mapping[str, str], forker: Forker
    ) -> None:
        self.folder = folder
        self._forker = forker
        self.home = folder / "home"
        self._settings = dict(settings)
        self._brokers = list(brokers)
        self._daemons: dict[str, Daemon] = {}
        self._ports: dict[int, int] = {}  # from ports in pages to real ones
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.home),
            "MQ_CONFIG_DIR": str(folder / "config"),
            "MQ_CACHE_DIR": str(folder / "cache"),
            "MQ_STATE_DIR": str(folder / "state"),
            "PYTHONUTF8": "1",
            "TZ": "UTC",
            "PYTEST_DEBUG_TEMPROOT": str(folder),  # its pytest cleans up while others are running
        }
        # Outer folders come last, because the first match is replaced.
        self._folders = {
            "/etc/mq": str(folder / "etc"),
            "/var/lib/mq": str(folder / "var"),
            "/tmp/rocketmq": str(folder / "state"),
            "/home/me": str(self.home),
        }

    def __enter__(self) -> Self:
        for name in ("home", "bin", "etc", "var"):
            (self.folder / name).mkdir(parents=True)
        programs = {name: self._forker.command(name) for name in PROGRAMS}
        programs |= {"python": [sys.executable], "pytest": [sys.executable, "-m", "pytest"]}
        for program, words in programs.items():
            path = self.folder / "bin" / program
            path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            path.chmod(0o755)
        try:
            if self._brokers:
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(self._daemons):
            self._daemons[name].stop()

    def to_run(self, text: str) -> str:
        """Replace ports and folders of a page by those of this run."""
        for shown, real in self._ports.items():
            text = re.sub(rf"(?<=[:=]){shown}\b", str(real), text)
            text = text.replace(f"7F000001{shown:08X}", f"7F000001{real:08X}")
        for shown_folder, folder in self._folders.items():
            text = re.sub(rf"(?<![\w/.]){shown_folder}\b", folder, text)
        return text

    def to_show(self, text: str) -> str:
        """Replace ports and folders of this run in output by those of the pages."""
        for shown_folder, folder in self._folders.items():
            text = text.replace(folder, shown_folder)
        for shown, real in self._ports.items():
            text = re.sub(rf"(?<=[:=]){real}\b", str(shown), text)
            text = text.replace(f"7F000001{real:08X}", f"7F000001{shown:08X}")
        return text

    def systemctl(self, verb: str, *units: str) -> None:
        """Do what systemd would do with mq-namesrv, mq-controller, and with mq-broker@a, `a` for
        broker-a.

        `verb` is stop, start, restart, reload or kill; a killed unit stays down until `start`.
        """
        for unit in units:
            if unit.startswith("-"):
                continue
            name = _UNITS.get(unit) or "broker-" + unit.removeprefix("mq-broker@")
            daemon = self._daemons[name]
            if verb == "reload":
                daemon.reload()
            if verb == "kill":
                daemon.stop(signal.SIGKILL)
            if verb in ("stop", "restart"):
                daemon.stop()
            if verb in ("start", "restart"):
                daemon.start()

    def standalone(self, *arguments: str) -> list[str]:
        """Run `mq standalone` as a page's first command does; returns its output."""
        daemon = Daemon(["standalone", *arguments], self.environment, self._forker)
        lines = daemon.start("--namesrv-port", "0", "--broker-port", "0")
        self._daemons["standalone"] = daemon
        found = re.search(r"name server [0-9.]+:(\d+), broker [0-9.]+:(\d+)", lines[-1])
        if found is None:
            raise RuntimeError(f"mq standalone says {lines[-1]}")
        self._ports = {NAME_SERVER_PORT: int(found[1]), BROKER_PORTS[0]: int(found[2])}
        self.environment["NAMESRV_ADDR"] = f"127.0.0.1:{found[1]}"
        return lines

    def _start(self) -> None:
        path = self.folder / "etc" / "namesrv.conf"
        path.write_text(f"kvConfigPath={self.folder}/var/kv.json\n")
        server = Daemon(["namesrv", "-c", str(path)], self.environment, self._forker)
        self._daemons[_NAME_SERVER] = server
        own_port, _ = free_ports()
        path.write_text(path.read_text() + f"listenPort={own_port}\n")  # a restart reuses it
        address = server.start()[-1].split()[-1]
        self._ports[NAME_SERVER_PORT] = own_port
        self.environment["NAMESRV_ADDR"] = address
        if "etcd" in self._brokers:
            self._daemons["etcd"] = etcd = Etcd(self.folder / "etcd", self._forker)
            self._ports[ETCD_PORT] = etcd.port
            etcd.start()
        if "controller" in self._brokers:
            self._ports[CONTROLLER_PORT] = self._free_ports()[0]
            path = self.folder / "etc" / "controller.conf"
            self._daemons["controller"] = Daemon(
                ["controller", "-c", str(path)], self.environment, self._forker
            )
        brokers = [name for name in self._brokers if name not in ("etcd", "controller")]
        for name, port in zip(brokers, BROKER_PORTS, strict=False):
            self._place_broker(name.strip("()"), port, address)
            if not name.startswith("("):
                self._daemons[name].start()

    def _free_ports(self) -> tuple[int, int]:
        """Return a pair of ports that are free, and not assigned to a daemon that has not started
        yet.
        """
        while True:
            found = free_ports()
            if set(found).isdisjoint(self._ports.values()):
                return found

    def _place_broker(self, name: str, port: int, name_server: str) -> None:
        self._ports[port] = own_port = self._free_ports()[1]  # a restart reuses it
        settings = {
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": name_server,
            "storePathRootDir": str(self.folder / "var" / name / "store"),
            "mappedFileSizeCommitLog": str(_LOG_FILE_BYTES),
            **self._settings,
            "listenPort": str(own_port),
        }
        if "metricsPort" in settings:
            self._ports[int(settings["metricsPort"])] = free = self._free_ports()[0]
            settings["metricsPort"] = str(free)
        path = self.folder / "etc" / f"{name.removeprefix('broker-')}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._daemons[name] = Daemon(["broker", "-c", str(path)], self.environment, self._forker)
