"""A Spark cluster of real processes (a master and two workers), and drivers that can be killed.

Executors are children of their workers and run the interpreter of the tests, in which mq is
installed. A test session starts one cluster, in about four seconds.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.interop.ports import free_port
from tests.interop.process import Process
from tests.pipeline.jvm import jvm_options, spark_home

_EXECUTOR = b"CoarseGrainedExecutorBackend"
_ROOT = Path(__file__).parents[2]


class _Daemon(Process):
    """A Spark daemon; it logs to its standard error, which is read."""

    def __init__(self, kind: str, home: Path, ready: str, *arguments: str) -> None:
        spark_class = str(spark_home() / "bin" / "spark-class")
        settings = {
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "160m",
            "SPARK_DAEMON_JAVA_OPTS": jvm_options(),
            "PYTHONPATH": str(_ROOT),
        }
        command = ["env", *(f"{name}={value}" for name, value in settings.items())]
        super().__init__(
            [*command, spark_class, f"org.apache.spark.deploy.{kind}", *arguments], home, ready
        )


class SparkCluster:
    """A master and two workers of one core each; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._stack = ExitStack()
        self._workers: list[_Daemon] = []

    @property
    def master(self) -> str:
        """The value of a driver's --master option."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        listening = ["--host", "127.0.0.1", "--webui-port", "0"]
        with self._stack:
            master = _Daemon(
                "master.Master",
                self._folder / "master",
                "I have been elected leader",
                *(*listening, "--port", str(self._port)),
            )
            self._stack.enter_context(master)
            for number in range(2):
                home = self._folder / f"worker-{number}"
                worker = _Daemon(
                    "worker.Worker",
                    home,
                    "Successfully registered with master",
                    *(*listening, "-c", "1", "-m", "700m", "-d", str(home), self.master),
                )
                self._workers.append(self._stack.enter_context(worker))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.executors():
            os.kill(process, signal.SIGKILL)
        self._stack.close()

    def executors(self) -> list[int]:
        """The process ids of the running executors."""
        workers = {worker.pid for worker in self._workers}
        return [
            child
            for child, parent in _parents().items()
            if parent in workers and _EXECUTOR in _command_line(child)
        ]

    def kill_an_executor(self) -> None:
        """SIGKILL, as the system sends it to a process that takes too much memory."""
        os.kill(self.executors()[0], signal.SIGKILL)


def _parents() -> dict[int, int]:
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        found[int(stat.parent.name)] = int(fields[1])
    return found


def _command_line(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


class Driver(Process):
    """A Spark driver in its own process; tests.pipeline.driver_program lists its tasks.

    `kill` ends it as kill -9 does, including its JVM.
    """

    def __init__(self, folder: Path, master: str, what: str, **task: Any) -> None:
        text = json.dumps({"master": master, "what": what, "folder": str(folder), **task})
        settings = {"PYTHONPATH": str(_ROOT), "PYSPARK_PYTHON": sys.executable}
        settings["SPARK_HOME"] = str(spark_home())
        command = ["env", *(f"{name}={value}" for name, value in settings.items())]
        command += [sys.executable, "-m", "tests.pipeline.driver_program", text]
        super().__init__(command, folder, "the session is open")

    def result(self, timeout: float) -> Any:
        """Return its result. Raises TimeoutError with its output if it failed."""
        line = self.wait_for_line("result: ", timeout)[0]
        return json.loads(line.partition("result: ")[2])

    def wait_until(self, condition: Callable[[], Any], timeout: float) -> None:
        """Wait for a condition that is not visible in its output."""
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end or any("Traceback" in line for line in self.lines):
                raise TimeoutError("\n".join(self.lines[-40:]))
            time.sleep(0.01)
