"""The cells of a page: one Python process runs them all, like the kernel of a notebook."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

_CELL_SECONDS = 300  # the first one may start Spark, among others

# Runs cells that arrive as lines of JSON; their output is sent back the same way.
_KERNEL = """\
import contextlib, io, json, sys, traceback
answers, names = sys.stdout, {"__name__": "__main__"}
for line in sys.stdin:
    printed, status = io.StringIO(), 0
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(json.loads(line), "cell", "exec"), names)
        except BaseException:
            traceback.print_exc(file=printed)
            status = 1
    print(json.dumps([status, printed.getvalue()]), file=answers, flush=True)
"""


class SparkSetup(NamedTuple):
    """The Spark of cells, by default the one that pip has installed, and its JVM options."""

    home: Path | None = None
    # The first compiler alone takes a third of the time for code that runs only once.
    jvm_options: str = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Notebook:
    """A Python process that is started for the first cell; a context manager."""

    def __init__(self, folder: Path, environment: Mapping[str, str], spark: SparkSetup) -> None:
        self._home = folder / "home"
        self._log = folder / "notebook.log"
        self._environment = environment
        self._spark = spark
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()  # ends it
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def run(self, code: str) -> tuple[int, str]:
        """Run a cell; returns 0 and its output, or 1 and the output with a trace."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        late = threading.Timer(_CELL_SECONDS, process.kill)
        late.start()
        try:
            process.stdin.write(json.dumps(code) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            late.cancel()
        if not answer:
            return 1, f"(it has ended, or taken longer than {_CELL_SECONDS} s)"
        status, printed = json.loads(answer)
        return status, printed

    def _start(self) -> "subprocess.Popen[str]":
        # Settings that readers do not need: Spark is small, quiet and on loopback only.
        quiet = {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": "--driver-memory 512m --conf spark.ui.enabled=false "
            f"--driver-java-options '{self._spark.jvm_options}' "
            "--conf spark.ui.showConsoleProgress=false "
            # By default a Python worker has 15 s to connect, which may be too short on a busy
            # machine.
            f"--conf spark.python.authenticate.socketTimeout={_CELL_SECONDS}s pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        if self._spark.home is not None:
            quiet["SPARK_HOME"] = str(self._spark.home)
        if "JAVA_HOME" in os.environ:
            quiet["JAVA_HOME"] = os.environ["JAVA_HOME"]
        with self._log.open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-u", "-c", _KERNEL],
                cwd=self._home,
                env={**self._environment, **quiet},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
