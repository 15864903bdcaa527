"""The options of `mq spark submit` for Spark."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.runtime.option_groups import option_group

if TYPE_CHECKING:
    from mq.cli.spark.command import SparkSetup


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
