"""The command line and environment variables of spark-submit."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mq.cli.runtime.errors import UsageError
from mq.cli.spark.installed import Spark
from mq.cli.spark.package import Package

JOB_FILE = "mq-job.json"
LOCAL = "local[*]"

_MASTERS = ("local", "spark://", "yarn", "k8s://")
_SECRETS = ("MQ_ACCESS_KEY", "MQ_SECRET_KEY", "MQ_SECURITY_TOKEN")
_ENVIRONMENT = "environment"  # the directory to which executors unpack a packed environment
_UNPACKED = f"./{_ENVIRONMENT}/bin/python"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class SparkSetup:
    """The Spark options of a user. `settings` are KEY=VALUE; sizes are in Spark's form."""

    master: str = LOCAL
    cluster_mode: bool = False
    settings: tuple[str, ...] = ()
    driver_memory: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = None
    executors: int | None = None
    python: str | None = None
    environment: str | None = None
    log_level: str = "WARN"
    progress: bool = field(default=False, compare=False)

    def check(self) -> None:
        """Raise UsageError for invalid options or combinations."""
        if not self.master.startswith(_MASTERS):
            raise UsageError(
                f"--master {self.master} is not supported by Spark",
                hint="local[*], local[2], spark://HOST:7077, yarn or k8s://https://HOST:443",
            )
        if self.cluster_mode and self.is_local:
            raise UsageError(
                "--deploy-mode cluster needs a cluster", hint="for example: --master yarn"
            )
        if self.cluster_mode and self.master.startswith("spark://"):
            raise UsageError(
                "Spark's standalone clusters do not run drivers in Python",
                hint="leave out --deploy-mode cluster: the driver runs here, executors there",
            )
        if self.environment is not None and self.is_local:
            raise UsageError(
                "--environment is for executors of a cluster",
                hint="for this machine use --python PATH",
            )
        for setting in self.settings:
            key, equals, _ = setting.partition("=")
            if not equals or not key.startswith("spark."):
                raise UsageError(
                    f"--conf {setting!r} is not a Spark setting in the form KEY=VALUE",
                    hint="for example: --conf spark.sql.shuffle.partitions=8",
                )

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def arguments(spark: Spark, package: Package, wanted: SparkSetup, job_file: Path) -> list[str]:
    """Return the whole command. The user's --conf settings come last and override others."""
    words = [str(spark.submit), "--master", wanted.master, "--name", "mq"]
    if wanted.cluster_mode:
        words += ["--deploy-mode", "cluster", "--files", str(job_file)]
    for flag, value in (
        ("--driver-memory", wanted.driver_memory),
        ("--executor-memory", wanted.executor_memory),
        ("--executor-cores", wanted.executor_cores),
        ("--num-executors", wanted.executors),
    ):
        if value is not None:
            words += [flag, str(value)]
    words += ["--py-files", str(package.zip)]
    if wanted.environment is not None:
        words += ["--archives", f"{wanted.environment}#{_ENVIRONMENT}"]
    for setting in (*_settings(wanted), *wanted.settings):
        words += ["--conf", setting]
    job = job_file.name if wanted.cluster_mode else str(job_file)
    return [*words, str(package.program), job]


def _settings(wanted: SparkSetup) -> list[str]:
    settings = {
        "spark.log.level": wanted.log_level,
        "spark.ui.showConsoleProgress": "true" if wanted.progress else "false",
    }
    if wanted.executors is not None and wanted.master.startswith("spark://"):
        # --num-executors has no effect there: the total number of cores limits the executors.
        cores = wanted.executor_cores or 1
        settings["spark.executor.cores"] = str(cores)
        settings["spark.cores.max"] = str(cores * wanted.executors)
    if wanted.environment is not None and wanted.cluster_mode:
        settings["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] = _UNPACKED
    elif wanted.environment is not None:
        settings["spark.executorEnv.PATH"] = f"./{_ENVIRONMENT}/bin:{_SYSTEM_PATH}"
    return [f"{key}={value}" for key, value in settings.items()]


def variables_for(
    spark: Spark, wanted: SparkSetup, given: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the variables to add for spark-submit; `folder` contains the job file."""
    # A directory called mq in the working directory must not hide the zip's package.
    found = {"PYTHONSAFEPATH": "1"}
    if spark.home is not None:
        found["SPARK_HOME"] = str(spark.home)
    if wanted.environment is not None and wanted.cluster_mode:
        found["PYSPARK_PYTHON"] = _UNPACKED
    elif wanted.environment is not None:
        # The driver plans reads with the Python of this name, too, so a path that exists only at
        # executors does not work. Each side finds the name on its own PATH; here it is `stand_in`.
        found["PYSPARK_PYTHON"] = _python_name()
        found["PATH"] = f"{folder / 'bin'}:{given.get('PATH', _SYSTEM_PATH)}"
    elif wanted.python is not None:
        found["PYSPARK_PYTHON"] = wanted.python
    elif wanted.is_local and not given.get("PYSPARK_PYTHON"):
        found["PYSPARK_PYTHON"] = sys.executable
    # The driver runs here, with this Python unless another one is requested.
    if not wanted.cluster_mode and not given.get("PYSPARK_DRIVER_PYTHON"):
        asked = wanted.python or given.get("PYSPARK_PYTHON")
        found["PYSPARK_DRIVER_PYTHON"] = (
            asked if asked and wanted.environment is None else sys.executable
        )
    return found


def write_stand_in(folder: Path) -> None:
    """Write a program that runs this Python under the name that executors use for theirs.

    It runs Python by its path: Python searches its libraries next to the program found on the PATH,
    which is that of executors.
    """
    path = folder / "bin" / _python_name()
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    path.chmod(0o700)


def _python_name() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without secrets: the web pages of Spark display variables."""
    return {name: value for name, value in variables.items() if name not in _SECRETS}


def shown(words: list[str], variables: Mapping[str, str]) -> str:
    """Return the command as a shell line."""
    set_before = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*set_before, *map(shlex.quote, words)])
