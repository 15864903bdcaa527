"""The options of `mq spark submit` for Spark."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.runtime.option_groups import option_group

if TYPE_CHECKING:
    from mq.cli.spark.command import SparkSetup
import inspect
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from mq.cli import time_expressions
from mq.cli.runtime.errors import UsageError
from mq.pipeline import parsing
from mq.pipeline.jobs import JOBS, UnknownJob, load
from mq.pipeline.jobs.declaration import Job, JobError, JobOption, JobOptionError

_PREFIX = "job_option_"  # avoids clashes with parameters of the command


def job_called(name: str) -> Job:
    """Return the job. Raises UsageError with similar names."""
    try:
        return load(name)
    except UnknownJob as error:
        hint = f"did you mean {' or '.join(error.near)}?" if error.near else "see: mq spark list"
        raise UsageError(str(error), hint=hint) from None


def parameters(arguments: Sequence[str]) -> list[inspect.Parameter]:
    """Return the options of the job that the arguments name, as parameters of a command."""
    named = next((word for word in arguments if word in JOBS), None)
    if named is None:
        if arguments and not arguments[0].startswith("-"):
            job_called(arguments[0])
        return []
    return [_parameter(option) for option in load(named).options]


def texts(job: Job, given: Mapping[str, Any], now: float) -> dict[str, str]:
    """Return the given arguments of a job by name.

    A time such as `15m` is converted here to seconds since 1970: a driver starts later, perhaps
    again, and elsewhere. Raises UsageError for an invalid time.
    """
    found = {}
    for option in job.options:
        value = given.get(_PREFIX + option.field)
        if value is not None and value is not False:
            text = "true" if value is True else str(value)
            is_time = option.metavar == "TIME" and not _is_exact(text)
            found[option.name] = _exact(text, option.name, now) if is_time else text
    return found


def checked(job: Job, given: Mapping[str, str]) -> None:
    """Raise UsageError for arguments that the job rejects, before Spark is started."""
    try:
        job.read(given)
    except JobOptionError as error:
        raise UsageError(str(error), hint=error.hint) from None
    except JobError as error:
        raise UsageError(str(error), hint=f"see: mq spark explain {job.name}") from None


def _parameter(option: JobOption) -> inspect.Parameter:
    is_switch = not option.metavar
    help = option.help
    if option.metavar == "TIME":
        help = f"{help.removesuffix('.')}: {time_expressions.FORMS}."
    if option.default_text and not option.required:
        help = f"{help} Default: {option.default_text}."
    declared = typer.Option(
        f"--{option.name}",
        metavar=None if is_switch else option.metavar,
        help=f"{help} Required." if option.required else help,
    )
    return inspect.Parameter(
        _PREFIX + option.field,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=False if is_switch else None,
        annotation=Annotated[bool, declared] if is_switch else Annotated[str | None, declared],
    )


def _is_exact(text: str) -> bool:
    try:
        parsing.time(text)
    except ValueError:
        return False
    return True


def _exact(text: str, name: str, now: float) -> str:
    """Return the time of a text, in UTC."""
    return time_expressions.calendar(text, f"--{name}", now, UTC).isoformat(timespec="milliseconds")


class DeployMode(Enum):
    """The place of the driver."""

    CLIENT = "client"
    CLUSTER = "cluster"


class LogLevel(Enum):
    """The levels of Spark's log."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


@option_group
class SparkOptions:
    """The cluster and resources of a job."""

    master: Annotated[
        str,
        typer.Option(
            "--master",
            metavar="URL",
            help="Spark master: local[4], spark://HOST:7077, yarn or k8s://HOST.",
        ),
    ] = "local[*]"
    deploy_mode: Annotated[
        DeployMode,
        typer.Option("--deploy-mode", help="Run the driver here (client) or in the cluster."),
    ] = DeployMode.CLIENT
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark."),
    ] = None
    driver_memory: Annotated[
        str | None,
        typer.Option("--driver-memory", metavar="SIZE", help="Memory of the driver, such as 2g."),
    ] = None
    executor_memory: Annotated[
        str | None,
        typer.Option(
            "--executor-memory", metavar="SIZE", help="Memory of each executor, such as 4g."
        ),
    ] = None
    executor_cores: Annotated[
        int | None, typer.Option("--executor-cores", metavar="N", help="Cores of each executor.")
    ] = None
    executors: Annotated[
        int | None, typer.Option("--num-executors", metavar="N", help="Number of executors.")
    ] = None
    spark_home: Annotated[
        str | None,
        typer.Option(
            "--spark-home",
            metavar="DIR",
            help="Directory of Spark. Default: SPARK_HOME, pyspark next to mq, the PATH.",
        ),
    ] = None
    python: Annotated[
        str | None,
        typer.Option(
            "--python",
            metavar="PATH",
            help="Python of driver and executors. Default: PYSPARK_PYTHON; on this machine the "
            "Python of mq.",
        ),
    ] = None
    environment: Annotated[
        str | None,
        typer.Option(
            "--environment",
            metavar="FILE",
            help="Packed Python environment (venv-pack, conda-pack) that executors unpack and use.",
        ),
    ] = None
    log_level: Annotated[
        LogLevel,
        typer.Option("--log-level", help="Level of Spark's log, which goes to standard error."),
    ] = LogLevel.WARN

    def wanted(self, *, progress: bool) -> "SparkSetup":
        """Return the setup for spark-submit."""
        from mq.cli.spark.command import SparkSetup

        return SparkSetup(
            master=self.master,
            cluster_mode=self.deploy_mode is DeployMode.CLUSTER,
            settings=tuple(self.conf or ()),
            log_level=self.log_level.value.upper(),
            progress=progress,
            driver_memory=self.driver_memory,
            executor_memory=self.executor_memory,
            executor_cores=self.executor_cores,
            executors=self.executors,
            python=self.python,
            environment=self.environment,
        )
