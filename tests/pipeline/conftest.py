"""A Spark session for all tests of a worker; starting one takes ten seconds."""

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

from tests.pipeline.jvm import jvm_options, starting_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.clusters import SparkCluster


# Seconds: a JVM and its Python workers start slowly on a machine that is busy with other tests.
PATIENCE = 200
# Spark's message if a Python process that it has started does not connect within ten seconds
# (PythonWorkerFactory.createSimpleWorker). No setting extends the time for a busy machine.
SPARK_IMPATIENT = "Python worker failed to connect back"


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Rerun a test that failed only because of Spark's ten seconds, at most twice.

    pytest-rerunfailures queries the first process over a socket before and after every test of the
    suite, byte by byte, which took as long as a thousand tests.
    """
    if not item.path.is_relative_to(Path(__file__).parent):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for is_last in (False, False, True):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = [report for report in reports if report.failed]
        if is_last or not failed or any(SPARK_IMPATIENT not in r.longreprtext for r in failed):
            break
        item.add_report_section("setup", "run again", SPARK_IMPATIENT)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def require_spark() -> None:
    """Skip the test when pyspark or a JDK is missing; with CI=true fail instead."""
    reason = None
    if shutil.which("java") is None:
        reason = "java not found: apt-get install openjdk-17-jdk-headless"
    try:
        import_module("pyspark.sql")
    except ImportError as error:
        reason = f"{error}: pip install 'mq[spark]'"
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def require_streams() -> None:
    """Skip the test with a Spark whose sources cannot be read as streams: one before 4.2."""
    require_spark()
    try:
        import_module("pyspark.sql.streaming.datasource")
    except ImportError:
        pytest.skip("readStream needs Spark 4.2", allow_module_level=True)


def require_filters() -> None:
    """Skip the test with a Spark that passes no filters to sources: one before 4.1."""
    require_spark()
    if not hasattr(import_module("pyspark.sql.datasource"), "Filter"):
        pytest.skip("filters need Spark 4.1", allow_module_level=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """local[2], with the data source registered."""
    require_spark()
    from pyspark.sql import SparkSession

    import mq.pipeline

    # It logs the end of each connection, even when this process ends and all logs are closed.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": jvm_options(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # For the few rows of a test, compiling a query costs more than it saves.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        # A Python worker has 15 s by default to call back.
        "spark.python.authenticate.socketTimeout": f"{PATIENCE}s",
    }
    builder = SparkSession.builder.master("local[2]").appName("mq tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with starting_spark():
        session = builder.getOrCreate()
    mq.pipeline.register(session)
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """The checkpoint folder of a streaming query."""
    return str(tmp_path / "checkpoint")


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkCluster]":
    """A master and two workers."""
    require_spark()
    from tests.pipeline.clusters import SparkCluster

    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
