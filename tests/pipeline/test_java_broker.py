"""The Spark source against Java's own broker."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mq.client.admin import Admin
from mq.client.producer import Producer
from mq.client.session import Session
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.message import Message
from tests.interop import peers
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.filling import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.timeout(2 * PATIENCE)]

RELEASE = "4.9.7"
TOPIC = "spark-reads"


@pytest.fixture(scope="module")
def java_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.JavaBroker]:
    peers.require_java()
    home = tmp_path_factory.mktemp("java")
    config = {"enablePropertyFilter": "true"}
    with (
        peers.JavaNameServer(RELEASE, home) as namesrv,
        peers.JavaBroker(RELEASE, home, namesrv.address, config) as broker,
    ):
        yield broker


def make_topic(broker: peers.JavaBroker) -> None:
    async def work() -> None:
        async with Session(broker.namesrv) as session:
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2, perm=6)
            admin = Admin(session)
            await admin.create_topic(broker.address, config)
            async with asyncio.timeout(30):
                while TOPIC not in (await admin.topic_list()).topic_list:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    asyncio.run(work())


def send(broker: peers.JavaBroker, message: Message) -> None:
    async def work() -> None:
        async with Producer(broker.namesrv) as producer:
            await producer.send(message, MessageQueue(TOPIC, broker.name, 1))

    asyncio.run(work())


def test_what_a_java_broker_stores_is_read_whole_filtered_and_as_a_stream(
    spark: "SparkSession", java_broker: peers.JavaBroker, checkpoint: str
) -> None:
    make_topic(java_broker)
    many = [b"%04d" % n for n in range(1000)]
    queue = MessageQueue(TOPIC, java_broker.name, 0)
    fill(java_broker.namesrv, TOPIC, many, queue, tags="Many")
    send(java_broker, Message(TOPIC, b"large " * 2000, "One", ["k"], {"n": "5"}))  # compressed
    send(java_broker, Message(TOPIC, b"other", "Two", properties={"n": "1"}))
    options = {"nameServer": java_broker.namesrv, "topic": TOPIC}

    frame = spark.read.format("rocketmq").options(**options).load()
    rows = frame.orderBy("queueId", "queueOffset").collect()
    assert [bytes(row.body) for row in rows] == [*many, b"large " * 2000, b"other"]
    assert [row.queueOffset for row in rows] == [*range(1000), 0, 1]
    assert (rows[1000].tags, rows[1000]["keys"]) == ("One", "k")
    assert {row.brokerName for row in rows} == {java_broker.name}

    some = spark.read.format("rocketmq").options(**options)
    one = some.option("subExpression", "One || Two").schema("queueId int, tags string").load()
    assert sorted(tuple(row) for row in one.collect()) == [(1, "One"), (1, "Two")]
    some = some.option("subExpression", "n > 3").option("subExpressionType", "SQL92")
    assert [row.tags for row in some.schema("tags string").load().collect()] == ["One"]

    stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest")
    writer = stream.option("maxOffsetsPerTrigger", "400").load().writeStream.format("memory")
    query = (
        writer.queryName("java")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE)
    assert spark.table("java").count() == 1002
    assert [each["numInputRows"] for each in query.recentProgress][:2] == [400, 400]
