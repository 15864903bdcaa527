"""Archived messages are sent again."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mq.pipeline.jobs import load, replay
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.declaration import JobError, JobOptionError
from mq.pipeline.jobs.job_result import JobResult
from mq.pipeline.jobs.pacing import Pace, paced, small_batches
from mq.pipeline.offsets import Queue
from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
FILES = (
    "topic string, brokerName string, queueId int, queueOffset bigint, storeTimestamp timestamp,"
    " body binary, tags string, keys string, properties map<string,string>, flag int"
)


def run(spark: "SparkSession", broker: RunningBroker, folder: Path, **given: str) -> JobResult:
    job = load("replay")
    given = {"folder": str(folder), **given}
    return job.run(spark, job.read(given), ClusterAccess(broker.name_server))


def row(queue_id: int, offset: int, body: bytes, topic: str = "Old", **properties: str) -> Any:
    """A message whose store time is its offset in seconds after noon."""
    time = NOON + timedelta(seconds=offset)
    tag = properties.get("TAGS")
    key = properties.get("KEYS")
    return (topic, "broker-a", queue_id, offset, time, body, tag, key, properties, 7)


@pytest.fixture(scope="module")
def folder(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet of 30 messages in queue 0 and 20 in queue 3, unordered, and an empty file."""
    path = tmp_path_factory.mktemp("files") / "parquet"
    rows = [row(0, n, b"0-%02d" % n) for n in range(29, -1, -1)]
    rows += [row(3, n, b"3-%02d" % n) for n in range(20)]
    rows.append(row(3, 20, b"", KEYS="k"))
    frame = spark.createDataFrame(rows, FILES).repartition(3, "queueOffset")
    frame.write.parquet(str(path))
    return path


def bodies(broker: RunningBroker, topic: str) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for message in sorted(broker.messages(topic), key=lambda each: each.queue_offset):
        found.setdefault(message.queue_id, []).append(bytes(message.body))
    return found


def test_each_queue_keeps_its_order_and_number(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, folder: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 4)
    outcome = run(spark, mq_session_broker, folder, to=mq_topic)
    assert bodies(mq_session_broker, mq_topic) == {
        0: [b"0-%02d" % n for n in range(30)],
        3: [b"3-%02d" % n for n in range(20)],
    }
    noon = int(NOON.timestamp() * 1000)
    assert outcome.tables[0].rows == [
        ("Old", "broker-a", 0, 30, 120, noon, noon + 29_000, mq_topic, "broker-a", 0),
        ("Old", "broker-a", 3, 20, 80, noon, noon + 20_000, mq_topic, "broker-a", 3),
    ]
    assert outcome.failures == ["1 messages have an empty body, which brokers refuse"]


def test_queues_are_mapped_if_the_topic_has_others(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, folder: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    with pytest.raises(JobError, match=r"has no queue 3 at broker broker-a: .* --queues mapped"):
        run(spark, mq_session_broker, folder, to=mq_topic)
    assert mq_session_broker.messages(mq_topic) == []
    run(spark, mq_session_broker, folder, to=mq_topic, queues="mapped", rate="100000")
    (sent,) = bodies(mq_session_broker, mq_topic).values()
    assert [each for each in sent if each[:1] == b"0"] == [b"0-%02d" % n for n in range(30)]
    assert [each for each in sent if each[:1] == b"3"] == [b"3-%02d" % n for n in range(20)]


def test_only_selected_messages_are_sent_and_count_only_sends_none(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, folder: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 4)
    given = {
        "to": mq_topic,
        "topic": "Old,Other",
        "only-queues": "0,1",
        "begin": "2026-01-31T12:00:05Z",
        "end": "2026-01-31T12:00:08Z",
    }
    outcome = run(spark, mq_session_broker, folder, **given, **{"count-only": "true"})
    assert [each[:4] for each in outcome.tables[0].rows] == [("Old", "broker-a", 0, 3)]
    assert outcome.notes == ["nothing was sent: --count-only"]
    assert mq_session_broker.messages(mq_topic) == []
    run(spark, mq_session_broker, folder, **given, **{"exactly-once": "true"})
    assert bodies(mq_session_broker, mq_topic) == {0: [b"0-05", b"0-06", b"0-07"]}


def test_properties_are_kept_except_those_of_rocketmq(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    given = {"TAGS": "A", "KEYS": "k1 k2", "of": "mine", "__SHARDINGKEY": "s", "UNIQ_KEY": "OLD"}
    message = row(0, 0, b"x", mq_topic, **given, DELAY="3", RETRY_TOPIC="R", RECONSUME_TIME="2")
    spark.createDataFrame([message], FILES).write.parquet(str(tmp_path / "files"))
    mq_session_broker.create_topic(mq_topic, 1)
    run(spark, mq_session_broker, tmp_path / "files")
    (sent,) = mq_session_broker.messages(mq_topic)
    assert sent.flag == 7
    assert {name: sent.properties.get(name) for name in given} == {
        **given,
        "UNIQ_KEY": sent.properties["UNIQ_KEY"],
    }
    assert sent.properties["UNIQ_KEY"] != "OLD"
    assert not {"DELAY", "RETRY_TOPIC", "RECONSUME_TIME"} & sent.properties.keys()


def test_an_archive_is_replayed_unchanged(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    mq_session_broker.create_topic(mq_topic, 2)
    for n in range(6):
        mq_session_broker.send(mq_topic, b"%d" % n, tags="A", properties={"n": str(n)})
    job = load("archive")
    options = job.read({"folder": str(tmp_path / "archive"), "topic": mq_topic})
    job.run(spark, options, ClusterAccess(mq_session_broker.name_server))
    again = f"{mq_topic}-again"
    mq_session_broker.create_topic(again, 2)
    run(spark, mq_session_broker, tmp_path / "archive", to=again)
    assert bodies(mq_session_broker, again) == bodies(mq_session_broker, mq_topic)
    assert {each.properties["n"] for each in mq_session_broker.messages(again)} == set("012345")


def test_rows_that_exceed_the_rate_wait() -> None:
    now = [100.0]
    pace = Pace(10, lambda: now[0])
    assert pace.wait_for(5) == 0.5
    now[0] += 0.5
    assert pace.wait_for(1) == pytest.approx(0.1)
    now[0] += 60  # unused time is not saved up
    assert pace.wait_for(20) == 2.0
    assert pace.wait_for(10) == 3.0


def test_paced_rows_keep_their_order(spark: "SparkSession") -> None:
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    with small_batches(spark, 2000):
        assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "200"
        began = datetime.now(UTC)
        rows = paced(spark.range(0, 1000, 1, 1), "id", 2000).collect()
        took = (datetime.now(UTC) - began).total_seconds()
    assert [each.id for each in rows] == list(range(1000))
    assert took >= 0.49
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before


def queues(topic: str, broker: str, count: int) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, n) for n in range(count)]


@pytest.mark.parametrize(
    ("there", "how", "expected"),
    [
        ([*queues("T", "a", 2), *queues("T", "b", 2)], "same", ["a0", "a1", "b0"]),
        (queues("T", "a", 2), "same", ["a0", "a1", "a0"]),  # there is only one broker
        (queues("T", "c", 2), "same", ["c0", "c1", "c0"]),
        (queues("T", "c", 2), "mapped", ["c0", "c1", "c0"]),
        ([*queues("T", "c", 2), *queues("T", "d", 2)], "mapped", ["c0", "c1", "d0"]),
    ],
)
def test_queues_are_found(there: Sequence[MessageQueue], how: str, expected: list[str]) -> None:
    sources = [Queue("Old", "b", 0), Queue("Old", "a", 0), Queue("Old", "a", 1)]
    found = replay.targets(sources, {"T": there}, how, "T")
    assert [f"{found[each].broker_name}{found[each].queue_id}" for each in sorted(sources)] == (
        expected
    )


def test_a_queue_at_one_of_several_other_brokers_is_not_guessed() -> None:
    there = {"T": [*queues("T", "c", 1), *queues("T", "d", 1)]}
    with pytest.raises(JobError, match="has no queue 0 at broker a"):
        replay.targets([Queue("T", "a", 0)], there, "same", None)


def test_a_mistake_is_reported_in_one_line(
    spark: "SparkSession", mq_session_broker: RunningBroker, tmp_path: Path, folder: Path
) -> None:
    with pytest.raises(JobError, match="has no Parquet files; make an archive"):
        run(spark, mq_session_broker, tmp_path / "none")
    spark.range(1).write.parquet(str(tmp_path / "other"))
    with pytest.raises(JobError, match="has no column topic; a replay needs topic, brokerName"):
        run(spark, mq_session_broker, tmp_path / "other")
    with pytest.raises(JobError, match="topic Old does not exist: create it first"):
        run(spark, mq_session_broker, folder)
    with pytest.raises(JobError, match="has no messages that --topic, --only-queues"):
        run(spark, mq_session_broker, folder, topic="Nothing")
    with pytest.raises(JobOptionError, match="--only-queues: 'x' is not a number"):
        run(spark, mq_session_broker, folder, **{"only-queues": "1,x"})
