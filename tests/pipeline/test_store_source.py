"""Stores as tables: the messages that consumers would have seen, read from files."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mq.client.producer.producer import Producer
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message
from mq.testing import RunningBroker
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.filling import fill
from tests.pipeline.logs import FILE_SIZE, TIME, Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def read(
    spark: "SparkSession", path: Path, schema: str | None = None, **options: Any
) -> "DataFrame":
    reader = spark.read.format("rocketmq-store").options(**options)
    return (reader if schema is None else reader.schema(schema)).load(str(path))


def test_a_store_of_this_broker_has_the_messages_of_its_topics(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with RunningBroker(tmp_path, {"mappedFileSizeCommitLog": "65536"}) as broker:
        broker.create_topic("Orders", 2)
        bodies = [b"%04d" % n * (1 + n % 50) for n in range(1000)]
        fill(broker.name_server, "Orders", bodies, tags="TagA")
        broker.send("Other", b"large " * 5000)
        options = {"nameServer": broker.name_server, "topic": "Orders"}
        columns = ["topic", "queueId", "queueOffset", "body", "tags", "properties", "msgId"]
        columns += ["bornHost", "storeTimestamp", "flag"]
        online = spark.read.format("rocketmq").options(**options).load().select(*columns).collect()
    store = read(spark, tmp_path / "store", topic="Orders", maxPartitionBytes=20_000)
    assert sorted(store.select(*columns).collect()) == sorted(online)
    assert {row.brokerName for row in store.select("brokerName").distinct().collect()} == {None}
    named = read(spark, tmp_path / "store" / "commitlog", brokerName="b", topicPattern="O.*")
    found = named.groupBy("topic", "brokerName").count().collect()
    assert sorted(tuple(row) for row in found) == [("Orders", "b", 1000), ("Other", "b", 1)]
    (other,) = read(spark, tmp_path / "store", "body binary", topic="Other").collect()
    assert bytes(other.body) == b"large " * 5000


def test_delayed_and_transactional_messages_are_read_as_consumers_see_them(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with RunningBroker(tmp_path, {"messageDelayLevel": "1s 5m"}) as broker:
        broker.create_topic("Orders", 1)

        async def work() -> None:
            async with Producer(broker.name_server) as producer:
                await producer.send(Message("Orders", b"soon", delay_level=1))
                await producer.send(Message("Orders", b"later", delay_level=2))

        asyncio.run(work())
        broker.wait_for_messages("Orders", 1)
    rows = read(spark, tmp_path / "store", "body binary, topic string").collect()
    assert [(bytes(row.body), row.topic) for row in rows] == [(b"soon", "Orders")]
    waiting = read(spark, tmp_path / "store", "body binary", topic="SCHEDULE_TOPIC_XXXX").collect()
    assert [bytes(row.body) for row in waiting] == [b"soon", b"later"]


def test_prepared_messages_are_read_only_if_asked_for(
    spark: "SparkSession", tmp_path: Path
) -> None:
    log = Log([b"plain"])
    for sys_flag in (0x4, 0x8, 0xC):
        log.add(b"%x" % sys_flag, sys_flag=sys_flag)
    log.write(tmp_path)
    assert [bytes(row.body) for row in read(spark, tmp_path, "body binary").collect()] == [
        b"plain",
        b"8",
    ]
    assert read(spark, tmp_path, "body binary", includePrepared=True).count() == 4


def test_times_limit_the_messages_read_from_a_store(spark: "SparkSession", tmp_path: Path) -> None:
    log = Log([])
    for n in range(100):
        log.add(b"%02d" % n * 100, store_timestamp=TIME + n)
    log.write(tmp_path)
    times = {"startingTimestamp": TIME + 10, "endingTimestamp": TIME + 90}
    some = read(spark, tmp_path, "storeTimestamp bigint", **times, maxPartitionBytes=1000)
    assert sorted(row[0] - TIME for row in some.collect()) == list(range(10, 90))


def test_damage_fails_a_query_or_is_skipped_and_can_be_listed(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    import mq.pipeline

    log = Log([b"%03d" % n * 100 for n in range(100)])
    place = log.places[40]
    file, at = place - place % FILE_SIZE, place % FILE_SIZE
    log.files[file][at + 100] ^= 1
    path = f"{log.write(tmp_path)}/{file:020d}"
    with pytest.raises(PySparkException, match=f"{file:020d}, byte {at}: the checksum of the body"):
        read(spark, tmp_path, "body binary").collect()
    rest = read(spark, tmp_path, "body binary", failOnDamage=False).collect()
    assert len(rest) == 99
    assert read(spark, tmp_path, "body binary", verifyBodies=False).count() == 100
    (row,) = read(spark, tmp_path, report="damage", maxPartitionBytes=1000).collect()
    size = log.places[41] - place
    assert tuple(row) == (path, at, size, "the checksum of the body is wrong")
    assert mq.pipeline.damage(str(tmp_path)) == [(*row, False)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, r"option path: \S+ is neither a store nor the folder of a commit log; for example"),
        ({"topic": "a", "topicPattern": "b"}, r"option topic: give either this or topicPattern"),
        ({"report": "all"}, r"option report: 'all' is none of damage; for example"),
        ({"nameServer": "a:1"}, r"option nameserver: there is none; did you mean"),
    ],
)
def test_a_wrong_option_is_named_before_any_task_starts(
    spark: "SparkSession", tmp_path: Path, options: dict[str, str], reason: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=reason):
        read(spark, tmp_path, "body binary", **options).collect()


@pytest.mark.java
@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_a_store_of_java_is_read_completely(
    spark: "SparkSession", tmp_path: Path, release: str
) -> None:
    require_java()
    with (
        peers.JavaNameServer(release, tmp_path) as namesrv,
        peers.JavaBroker(release, tmp_path, namesrv.address) as broker,
    ):
        topic = "TBW102-made"
        bodies = [b"%04d" % n for n in range(1000)]
        _send_first(namesrv.address, topic)
        fill(namesrv.address, topic, bodies, MessageQueue(topic, broker.name, 0), tags="Many")
    (log,) = (path.parent for path in tmp_path.rglob("commitlog/0*0"))
    found = read(spark, log.parent, "queueOffset bigint, body binary, tags string", topic=topic)
    rows = found.where("tags = 'Many'").orderBy("queueOffset").collect()
    assert [bytes(row.body) for row in rows] == bodies
    assert read(spark, log, report="damage").collect() == []


def _send_first(name_server: str, topic: str) -> None:
    """Create the topic at the broker by a first message."""

    async def work() -> None:
        async with Producer(name_server) as producer:
            async with asyncio.timeout(60):
                await producer.send(Message(topic, b"first"))

    asyncio.run(work())
