"""Source, sink and jobs with Java's brokers: 4.9.7, which requires access keys, and 5.5.0."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mq.client.admin import Admin
from mq.client.credentials import AccessKey
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.pipeline.jobs import load
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.job_result import JobResult
from mq.protocol.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from mq.protocol.message import Message
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.pipeline.conftest import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.timeout(2 * PATIENCE)]

TOPIC = "spark-reads"
KEY = AccessKey("pipeline", "pipeline_secret")
ACCOUNTS = """\
accounts:
  - {accessKey: pipeline, secretKey: pipeline_secret, admin: true}
"""
MANY = [b"%04d" % n for n in range(1000)]
LARGE = random.Random(6).randbytes(4_000_000)  # which compression does not shrink


@dataclass
class Java:
    """A name server and a broker with a topic of three queues."""

    broker: peers.JavaBroker
    access: ClusterAccess

    def session(self) -> Session:
        return Session(self.access.name_server, credentials=self._key)

    @property
    def _key(self) -> AccessKey | None:
        return None if self.access.acl_file is None else KEY

    def make_topic(self, topic: str, queues: int) -> None:
        async def make() -> None:
            async with self.session() as session:
                config = TopicConfig(
                    topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
                )
                admin = Admin(session)
                await admin.create_topic(self.broker.address, config)
                async with asyncio.timeout(30):
                    while topic not in (await admin.topic_list()).topic_list:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)

        asyncio.run(make())

    def fill(self) -> None:
        """Many small messages, a compressed one and a large one, each kind in its own queue."""
        many = [Message(TOPIC, body, "Many") for body in MANY]
        compressed = Message(TOPIC, b"large " * 2000, "One", ["k"], {"n": "5"})
        few = [compressed, Message(TOPIC, b"other", "Two", properties={"n": "1"})]

        async def work() -> None:
            async with self.session() as session, Producer(session) as producer:
                await producer.send_batch(many, MessageQueue(TOPIC, self.broker.name, 0))
                for message in few:
                    await producer.send(message, MessageQueue(TOPIC, self.broker.name, 1))
                large = MessageQueue(TOPIC, self.broker.name, 2)
                await producer.send(Message(TOPIC, LARGE), large)

        asyncio.run(work())

    def bodies(self, spark: "SparkSession", topic: str) -> list[bytes]:
        """The bodies that a batch read finds, queue by queue."""
        frame = self.access.read(spark, "queueId int, queueOffset bigint, body binary", topic=topic)
        rows = frame.orderBy("queueId", "queueOffset").collect()
        return [bytes(row.body) for row in rows]

    def run(self, spark: "SparkSession", name: str, **given: str) -> JobResult:
        """Run a job. It must succeed."""
        job = load(name)
        outcome = job.run(spark, job.read(given), self.access)
        assert not outcome.failures
        return outcome


@pytest.fixture(scope="module", params=["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)])
def java(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Java]:
    require_java()
    home = tmp_path_factory.mktemp("java")
    guarded = request.param.startswith("4.")
    config = {"enablePropertyFilter": "true", "aclEnable": str(guarded).lower()}
    acl_file = None
    with peers.JavaNameServer(request.param, home) as namesrv:
        broker = peers.JavaBroker(request.param, home, namesrv.address, config)
        if guarded:
            (broker.home / "conf").mkdir(parents=True, exist_ok=True)
            (broker.home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
            acl_file = home / "tools.yml"
            acl_file.write_text(f"accessKey: {KEY.access_key}\nsecretKey: {KEY.secret_key}\n")
        with broker:
            access = ClusterAccess(namesrv.address, None if acl_file is None else str(acl_file))
            found = Java(broker, access)
            found.make_topic(TOPIC, 3)
            found.fill()
            yield found


def test_all_messages_are_read_up_to_four_megabytes(spark: "SparkSession", java: Java) -> None:
    rows = java.access.read(spark, topic=TOPIC).orderBy("queueId", "queueOffset").collect()
    assert [bytes(row.body) for row in rows] == [*MANY, b"large " * 2000, b"other", LARGE]
    assert [row.queueOffset for row in rows] == [*range(1000), 0, 1, 0]
    assert (rows[1000].tags, rows[1000]["keys"]) == ("One", "k")
    assert {row.brokerName for row in rows} == {java.broker.name}


def test_the_broker_filters(spark: "SparkSession", java: Java) -> None:
    schema = "queueId int, tags string"
    tags = java.access.read(spark, schema, topic=TOPIC, subExpression="One || Two")
    assert sorted(tuple(row) for row in tags.collect()) == [(1, "One"), (1, "Two")]
    sql = java.access.read(
        spark, schema, topic=TOPIC, subExpression="n > 3", subExpressionType="SQL92"
    )
    assert [tuple(row) for row in sql.collect()] == [(1, "One")]


@pytest.mark.long
def test_a_stream_is_copied_and_each_row_is_visible_once(
    spark: "SparkSession", java: Java, checkpoint: str
) -> None:
    copy = f"{TOPIC}-copy"
    java.make_topic(copy, 2)
    options = java.access.options(
        topic=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger="400"
    )

    def run() -> list[int]:
        stream = spark.readStream.format("rocketmq").options(**options).schema("body binary")
        writer = stream.load().writeStream.format("rocketmq")
        query = (
            writer.options(**java.access.options(topic=copy, exactlyOnce="true"))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE)
        return [each["numInputRows"] for each in query.recentProgress]

    batches = run()
    assert sum(batches) == 1003
    assert batches[:2] == [400, 400]
    expected = sorted([*MANY, b"large " * 2000, b"other", LARGE])
    assert sorted(java.bodies(spark, copy)) == expected
    run()
    assert sorted(java.bodies(spark, copy)) == expected


@pytest.mark.long
def test_an_archive_is_replayed_and_group_offsets_are_exported(
    spark: "SparkSession", java: Java, tmp_path: Path
) -> None:
    again = f"{TOPIC}-again"
    java.make_topic(again, 3)
    folder = str(tmp_path / "archive")
    archived = java.run(spark, "archive", topic=TOPIC, folder=folder)
    assert sum(row[-1] for row in archived.tables[0].rows) == 1003
    java.run(spark, "replay", folder=folder, to=again)
    assert java.bodies(spark, again) == java.bodies(spark, TOPIC)

    (counted,) = java.run(spark, "count", topic=again).tables
    assert [row[3] for row in counted.rows] == [1000, 2, 1]

    async def commit() -> None:
        async with java.session() as session:
            admin = Admin(session)
            group = SubscriptionGroupConfig(group_name="readers")
            await admin.update_subscription_group(java.broker.address, group)
            await admin.update_consumer_offset(java.broker.address, "readers", again, 0, 600)

    asyncio.run(commit())
    offsets = str(tmp_path / "offsets")
    java.run(spark, "offset-export", folder=offsets, layout="json", topics=again)
    rows = spark.read.json(offsets).filter("group = 'readers'").collect()
    assert {row.queueId: (row.consumerOffset, row.lag) for row in rows} == {
        0: (600, 400),
        1: (None, 2),
        2: (None, 1),
    }
