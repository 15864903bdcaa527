"""The last message of each key."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mq.pipeline.jobs import compaction, load
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.declaration import JobError
from mq.pipeline.jobs.job_result import JobResult
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def message(
    key: str | None,
    queue_id: int,
    offset: int,
    second: int,
    body: bytes,
    tag: str | None = None,
    topic: str = "T",
) -> Any:
    time = NOON + timedelta(seconds=second)
    properties = {"id": key} if key else {}
    return (
        *(topic, "broker-a", queue_id, offset, "id", tag, key, properties, 0, body, time, time),
        *("127.0.0.1:1", 0, None),
    )


def frame(spark: "SparkSession", *messages: Any) -> "DataFrame":
    return spark.createDataFrame(list(messages), compaction.READ).repartition(2, "queueOffset")


def bodies(result: "DataFrame") -> dict[tuple[str, str], bytes]:
    return {(row.topic, row.key): bytes(row.body) for row in result.collect()}


MESSAGES = (
    message("a", 0, 1, 1, b"old"),
    message("a", 0, 3, 0, b"last"),  # the clock went back: the offset decides
    message("a", 0, 2, 9, b"older"),
    message("b", 0, 9, 2, b"queue 0"),
    message("b", 1, 0, 5, b"queue 1"),  # later, in another queue
    message("gone", 0, 10, 1, b"x"),
    message("gone", 0, 11, 2, b""),
    message("back", 0, 12, 1, b""),
    message("back", 0, 13, 2, b"again"),
    message("tagged", 0, 14, 2, b"x", tag="deleted"),
    message(None, 0, 15, 3, b"no key"),
    message("", 0, 16, 3, b"no key"),
    message("a", 0, 1, 1, b"of another topic", topic="U"),
)


def test_the_last_message_of_a_key_is_kept(spark: "SparkSession") -> None:
    last = compaction.last_by_key(compaction.with_key(frame(spark, *MESSAGES)))
    result = compaction.kept(last)
    assert bodies(result) == {
        ("T", "a"): b"last",
        ("T", "b"): b"queue 1",
        ("T", "back"): b"again",
        ("T", "tagged"): b"x",
        ("U", "a"): b"of another topic",
    }
    assert ("T", "tagged") not in bodies(compaction.kept(last, "deleted"))
    assert compaction.COUNTS.collect(compaction.counts(last, "deleted")).rows == [
        ("T", 12, 2, 5, 2, 3),
        ("U", 1, 0, 1, 0, 1),
    ]


def test_a_property_may_be_the_key(spark: "SparkSession") -> None:
    keyed = compaction.with_key(frame(spark, *MESSAGES), "id")
    assert {row.key for row in keyed.collect()} == {"a", "b", "gone", "back", "tagged", None}
    other = compaction.with_key(frame(spark, *MESSAGES), "none")
    assert compaction.kept(compaction.last_by_key(other)).count() == 0


def run(spark: "SparkSession", broker: RunningBroker, **given: str) -> JobResult:
    job = load("compaction")
    return job.run(spark, job.read(given), ClusterAccess(broker.name_server))


def test_a_topic_is_compacted_to_parquet(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    """Also a contract: readers of the result rely on its columns."""
    for n in range(6):
        mq_session_broker.send(mq_topic, b"%d" % n, keys=(f"k{n % 2}",))
    mq_session_broker.send(mq_topic, b"-")
    folder = tmp_path / "last"
    given = {"topic": mq_topic, "folder": str(folder)}
    outcome = run(spark, mq_session_broker, **given)
    assert outcome.tables[0].rows == [(mq_topic, 7, 1, 2, 0, 2)]
    assert outcome.notes[1] == "1 messages have no keys and were left out"
    assert [each.name for each in tmp_path.iterdir()] == ["last"]
    result = spark.read.parquet(str(folder))
    assert bodies(result) == {(mq_topic, "k0"): b"4", (mq_topic, "k1"): b"5"}
    assert {field.name: field.dataType.simpleString() for field in result.schema} == {
        "key": "string",
        "topic": "string",
        "brokerName": "string",
        "queueId": "int",
        "queueOffset": "bigint",
        "msgId": "string",
        "tags": "string",
        "keys": "string",
        "properties": "map<string,string>",
        "flag": "int",
        "body": "binary",
        "bornTimestamp": "timestamp",
        "storeTimestamp": "timestamp",
        "bornHost": "string",
        "reconsumeTimes": "int",
        "bodyError": "string",
    }
    mq_session_broker.send(mq_topic, b"6", keys=("k0",))
    with pytest.raises(JobError, match="has files already: give a new folder, or --replace"):
        run(spark, mq_session_broker, **given)
    run(spark, mq_session_broker, **given, replace="true")
    assert bodies(spark.read.parquet(str(folder)))[mq_topic, "k0"] == b"6"
    assert [each.name for each in tmp_path.iterdir()] == ["last"]
    (folder / "other.txt").write_text("")
    with pytest.raises(JobError, match=r"has files that are no Parquet, such as other\.txt"):
        run(spark, mq_session_broker, **given, replace="true")


def test_a_topic_is_compacted_to_another(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    for n in range(6):
        mq_session_broker.send(
            mq_topic, b"%d" % n, keys=(f"k{n % 3}",), tags="gone" if n == 5 else "A"
        )
    to = f"{mq_topic}-last"
    mq_session_broker.create_topic(to, 2)
    outcome = run(spark, mq_session_broker, topic=mq_topic, to=to, **{"tombstone-tag": "gone"})
    assert outcome.tables[0].rows == [(mq_topic, 6, 0, 3, 1, 2)]
    sent = {bytes(each.body): each for each in mq_session_broker.messages(to)}
    assert sent.keys() == {b"3", b"4"}
    assert sent[b"3"].properties["KEYS"] == "k0" and sent[b"3"].properties["TAGS"] == "A"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "T"}, "give either --folder or --to"),
        ({"topic": "T", "folder": "/x", "to": "U"}, "give either --folder or --to"),
        ({"topic": "T,U", "to": "U"}, "--to is one of the topics that are read"),
        ({"to": "U"}, "give either --topic or --topic-pattern"),
    ],
)
def test_a_mistake_is_reported_in_one_line(given: dict[str, str], message: str) -> None:
    with pytest.raises(JobError, match=message):
        load("compaction").read(given)
