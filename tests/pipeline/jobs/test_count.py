"""The job `count`, and the driver that runs jobs, in a real Spark."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mq.pipeline.jobs import driver, load
from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.filling import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def test_messages_are_counted_by_queue(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    for queue, bodies in ((0, [b"a" * 10, b"b" * 5]), (1, [b"c"])):
        fill(
            mq_session_broker.name_server,
            mq_topic,
            bodies,
            MessageQueue(mq_topic, "broker-a", queue),
        )
    stored = sorted(message.store_timestamp for message in mq_session_broker.messages(mq_topic))
    job = load("count")
    given = {
        "cluster": {"nameServer": mq_session_broker.name_server},
        "answer": str(tmp_path / "answer"),
    }
    outcome = driver.run_in(spark, job, job.read({"topic": mq_topic}), given)
    (table,) = outcome.tables
    assert [row[:5] for row in table.rows] == [
        (mq_topic, "broker-a", 0, 2, 15),
        (mq_topic, "broker-a", 1, 1, 1),
    ]
    assert min(row[5] for row in table.rows) == stored[0]
    assert max(row[6] for row in table.rows) == stored[-1]


def test_the_access_key_is_in_a_private_file_while_the_job_runs(tmp_path: Path) -> None:
    given = {"nameServer": "a:1", "accessKey": "who", "secretKey": "s3cret"}
    with driver.cluster_access(given, str(tmp_path)) as cluster:
        (path,) = tmp_path.iterdir()
        assert cluster.options() == {"nameServer": "a:1", "aclFile": str(path)}
        assert path.stat().st_mode & 0o777 == 0o600
        assert json.loads(path.read_text()) == {"accessKey": "who", "secretKey": "s3cret"}
        with cluster.session() as session:
            assert session is not None
    assert list(tmp_path.iterdir()) == []


def test_an_error_passed_through_spark_is_reported_in_one_line(
    spark: "SparkSession", mq_session_broker: RunningBroker
) -> None:
    job = load("count")
    given = {"cluster": {"nameServer": mq_session_broker.name_server}, "answer": None}
    with pytest.raises(Exception) as raised:
        driver.run_in(spark, job, job.read({"topic": "NoSuchTopic"}), given)
    kind, message = driver.explained(raised.value)
    assert kind == "Unknown"
    assert message.startswith("option topic: topic NoSuchTopic: no name server knows it")


def test_a_module_that_executors_lack_is_named() -> None:
    error = RuntimeError("Traceback …\nModuleNotFoundError: No module named 'orjson.x'\n\tat java")
    assert driver.explained(error) == (
        "MissingModule",
        "the Python of executors needs pyarrow, numpy and orjson: orjson is missing there",
    )
