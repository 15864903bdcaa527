"""Reads and writes on a cluster whose executors are killed, and by drivers that are killed."""

from collections import Counter
from pathlib import Path

import pytest

from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.clusters import Driver, SparkCluster
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.filling import fill

pytestmark = pytest.mark.timeout(3 * PATIENCE)


def offsets(broker: RunningBroker, topic: str, per_queue: int) -> list[list[int]]:
    """Fill two queues; returns their contents."""
    broker.create_topic(topic, 2)
    for queue_id in range(2):
        bodies = [b"%d-%d" % (queue_id, n) for n in range(per_queue)]
        fill(broker.name_server, topic, bodies, MessageQueue(topic, "broker-a", queue_id))
    return [[queue_id, n] for queue_id in range(2) for n in range(per_queue)]


@pytest.mark.long
def test_a_read_is_complete_although_an_executor_is_killed(
    spark_cluster: SparkCluster, mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    expected = offsets(mq_session_broker, mq_topic, 1500)
    options = {
        "nameServer": mq_session_broker.name_server,
        "topic": mq_topic,
        "minPartitions": "6",
    }
    with Driver(tmp_path, spark_cluster.master, "read_table", options=options) as driver:
        driver.wait_for_line("tasks ", PATIENCE)
        spark_cluster.kill_an_executor()
        assert sorted(driver.result(PATIENCE)) == expected


@pytest.mark.long
@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_a_write_is_complete_although_an_executor_is_killed(
    spark_cluster: SparkCluster,
    mq_session_broker: RunningBroker,
    mq_topic: str,
    tmp_path: Path,
    exactly_once: str,
) -> None:
    mq_session_broker.create_topic(mq_topic, 4)
    options = {
        "nameServer": mq_session_broker.name_server,
        "topic": mq_topic,
        "exactlyOnce": exactly_once,
        "sendBatchBytes": "1000",
    }
    what = {"rows": 3000, "partitions": 6, "options": options}
    with Driver(tmp_path, spark_cluster.master, "write_table", **what) as driver:
        driver.wait_for_line("tasks ", PATIENCE)
        spark_cluster.kill_an_executor()
        assert driver.result(PATIENCE) is None
    found = Counter(int(message.body) for message in mq_session_broker.messages(mq_topic))
    assert sorted(found) == list(range(3000))
    if exactly_once == "true":
        assert found.total() == 3000


@pytest.mark.long
def test_a_stream_reads_each_offset_once_although_its_driver_is_killed(
    mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    expected = offsets(mq_session_broker, mq_topic, 300)
    options = {
        "nameServer": mq_session_broker.name_server,
        "topic": mq_topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
    }
    what = {"options": options, "parquet": str(tmp_path / "parquet")}
    with Driver(tmp_path, "local[2]", "stream", **what) as driver:
        driver.wait_for_line("batch 1", PATIENCE)
        driver.kill()
    with Driver(tmp_path, "local[2]", "stream", **what) as driver:
        driver.result(PATIENCE)
    # Spark's sink lists the files that count; there may be others, of interrupted batches.
    listed = {
        part.partition('"path":"')[2].partition('"')[0].rpartition("/")[2]
        for log in (tmp_path / "parquet" / "_spark_metadata").iterdir()
        if not log.name.startswith(".")
        for part in log.read_text().splitlines()
        if '"path":"' in part
    }
    rows = [
        [row["queueId"], row["queueOffset"]]
        for name in listed
        for row in pq.read_table(tmp_path / "parquet" / name).to_pylist()
    ]
    assert sorted(rows) == expected


@pytest.mark.long
def test_a_stream_writes_each_row_once_although_its_driver_is_killed_in_a_commit(
    mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    offsets(mq_session_broker, mq_topic, 2000)
    copy = f"{mq_topic}-copy"
    mq_session_broker.create_topic(copy, 4)
    server = {"nameServer": mq_session_broker.name_server}
    options = {**server, "topic": mq_topic, "startingOffsets": "earliest"}
    options["maxOffsetsPerTrigger"] = "2000"
    what = {"options": options, "to": {**server, "topic": copy, "exactlyOnce": "true"}}

    def visible() -> int:
        return mq_session_broker.lag("nobody", copy)

    with Driver(tmp_path, "local[2]", "stream", **what) as driver:
        driver.wait_until(visible, PATIENCE)
        driver.kill()
    cut = visible()
    with Driver(tmp_path, "local[2]", "stream", **what) as driver:
        driver.result(PATIENCE)
    found = Counter(message.body for message in mq_session_broker.messages(copy))
    assert found == Counter(m.body for m in mq_session_broker.messages(mq_topic)), cut
    assert 0 < cut < 4000
