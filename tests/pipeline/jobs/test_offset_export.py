"""Snapshots of the offsets of a real broker."""

import asyncio
import csv
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mq.client import Admin, Session
from mq.pipeline.declared import ClusterOptions, read_declared
from mq.pipeline.jobs import load, offset_export, snapshots
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.declaration import BrokersAway, FolderFailed, JobError, JobOptionError
from mq.pipeline.jobs.job_result import JobResult
from mq.pipeline.jobs.offsets_of_groups import BrokerAddress, GroupFilter, ask_from_executors
from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.filling import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def commit(broker: RunningBroker, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    async def work() -> None:
        async with Session(broker.name_server) as session:
            for queue_id, offset in offsets.items():
                await Admin(session).update_consumer_offset(
                    broker.address, group, topic, queue_id, offset
                )

    asyncio.run(work())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningBroker]":
    """Two groups on a topic of three queues: 10 messages in queue 0, 5 in queue 1."""
    with RunningBroker(tmp_path_factory.mktemp("store")) as running:
        running.create_topic("Orders", 3)
        for queue_id, count in ((0, 10), (1, 5)):
            queue = MessageQueue("Orders", "broker-a", queue_id)
            fill(running.name_server, "Orders", [b"x"] * count, queue)
        commit(running, "billing", "Orders", {0: 4, 1: 5})
        commit(running, "audit", "Orders", {0: 10, 1: 5, 2: 0})
        yield running


def export(spark: "SparkSession", broker: RunningBroker, **given: str) -> JobResult:
    job = load("offset-export")
    return job.run(spark, job.read(given), ClusterAccess(broker.name_server))


def test_each_run_adds_a_snapshot(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    begun = datetime.now(UTC)
    for _ in range(2):
        outcome = export(spark, broker, folder=str(tmp_path))
    (groups,) = outcome.tables
    last = groups.rows[0][4]
    assert groups.rows == [("billing", "Orders", 3, 6, last), ("audit", "Orders", 3, 0, last)]
    assert begun.timestamp() * 1000 - 600_000 < last < begun.timestamp() * 1000
    files = sorted(tmp_path.rglob("*.parquet"))
    assert len(files) == 2
    for file in files:
        name = file.relative_to(tmp_path).as_posix()
        assert re.fullmatch(r"day=\d{4}(-\d\d){2}/offsets-\d{8}T\d{9}Z-[0-9a-f]{8}.parquet", name)
    read = snapshots.read(spark, str(tmp_path), "parquet")
    assert read.select("snapshotTime").distinct().count() == 2
    rows = read.where("`group` = 'billing'").orderBy("snapshotTime", "queueId").collect()
    assert [tuple(row)[1:9] for row in rows[:3]] == [
        ("broker-a", "Orders", 0, "billing", 4, 10, 0, 6),
        ("broker-a", "Orders", 1, "billing", 5, 5, 0, 0),
        ("broker-a", "Orders", 2, "billing", None, 0, 0, 0),
    ]
    assert rows[2].lastStoreTime is None
    assert rows[0].day == rows[0].snapshotTime.date()


def test_the_schema_of_snapshots_does_not_change(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    """A contract: readers of snapshots rely on these columns."""
    export(spark, broker, folder=str(tmp_path))
    written = spark.read.parquet(str(tmp_path)).schema
    assert {field.name: field.dataType.simpleString() for field in written} == {
        "snapshotTime": "timestamp",
        "brokerName": "string",
        "topic": "string",
        "queueId": "int",
        "group": "string",
        "consumerOffset": "bigint",
        "brokerOffset": "bigint",
        "minOffset": "bigint",
        "lag": "bigint",
        "lastStoreTime": "timestamp",
        "day": "date",
    }


def test_csv_and_json_have_the_same_content(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    for layout in ("csv", "json"):
        export(spark, broker, folder=str(tmp_path), layout=layout, groups="bill*")
    (table,) = tmp_path.rglob("*.csv")
    with table.open() as file:
        rows = list(csv.DictReader(file))
    (lines,) = tmp_path.rglob("*.json")
    objects = [json.loads(line) for line in lines.read_text().splitlines()]
    assert list(rows[0]) == list(objects[2])
    assert [row["consumerOffset"] for row in rows] == ["4", "5", ""]
    assert [each["consumerOffset"] for each in objects] == [4, 5, None]
    assert re.fullmatch(r"[\d-]{10}T[\d:]{8}\.\d{3}Z", objects[0]["snapshotTime"])
    for layout in ("csv", "json"):
        assert snapshots.read(spark, str(tmp_path), layout).agg({"lag": "sum"}).collect() == [(6,)]


def test_many_brokers_are_queried_by_executors(
    spark: "SparkSession", broker: RunningBroker
) -> None:
    options = read_declared(ClusterOptions, {"nameServer": broker.name_server})
    brokers = [BrokerAddress("broker-a", broker.address), BrokerAddress("gone", "127.0.0.1:1")]
    asked = ask_from_executors(spark, options, brokers, GroupFilter(("audit",)))
    assert sorted(row[:8] for row in asked.rows) == [
        ("broker-a", "Orders", 0, "audit", 10, 10, 0, 0),
        ("broker-a", "Orders", 1, "audit", 5, 5, 0, 0),
        ("broker-a", "Orders", 2, "audit", 0, 0, 0, 0),
    ]
    (failure,) = asked.failures
    assert failure.startswith("broker gone: 127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": "nobody"}, "no consumer group that --groups and --topics"),
        ({"cluster": "Other"}, "--cluster: there is no cluster Other; clusters are: DefaultC"),
        ({"layout": "orc"}, "--layout: 'orc' is none of parquet, csv, json"),
        ({"groups": ","}, "--groups: names nothing"),
        ({"folder": "nosuch://x/y"}, "nosuch://x/y: "),
    ],
)
def test_a_mistake_is_reported_in_one_line(
    spark: "SparkSession",
    broker: RunningBroker,
    tmp_path: Path,
    given: dict[str, str],
    message: str,
) -> None:
    with pytest.raises((JobError, JobOptionError)) as raised:
        export(spark, broker, **{"folder": str(tmp_path), **given})
    assert str(raised.value).startswith(message)
    assert isinstance(raised.value, FolderFailed) == message.startswith("nosuch:")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.rglob("*.*")) == []


def test_an_expected_broker_that_is_down_is_reported_and_the_others_are_exported(
    spark: "SparkSession", broker: RunningBroker, tmp_path: Path
) -> None:
    given = {"folder": str(tmp_path), "expected-brokers": "broker-a,broker-x"}
    outcome = export(spark, broker, **given)
    assert outcome.failures == ["broker broker-x: it is not registered"]
    assert outcome.tables[0].rows
    assert list(tmp_path.rglob("offsets-*.parquet"))
    assert export(spark, broker, **{**given, "expected-brokers": "broker-a"}).failures == []


def test_unreachable_name_servers_are_named(spark: "SparkSession", tmp_path: Path) -> None:
    job = load("offset-export")
    options = offset_export.Options(folder=str(tmp_path))
    with pytest.raises(BrokersAway, match=r"no name server answers: 127\.0\.0\.1:1: "):
        job.run(spark, options, ClusterAccess("127.0.0.1:1"))


@pytest.mark.parametrize("layout", snapshots.LAYOUTS)
def test_a_cluster_without_groups_has_an_empty_snapshot(
    spark: "SparkSession", mq_broker: RunningBroker, tmp_path: Path, layout: str
) -> None:
    outcome = export(spark, mq_broker, folder=str(tmp_path), layout=layout)
    assert (outcome.tables[0].rows, outcome.failures) == ([], [])
    assert snapshots.read(spark, str(tmp_path), layout).count() == 0
