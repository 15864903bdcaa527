"""Searches of a queue by store time, at Java's brokers and ours."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.operations.offsets import reset
from mq.client.operations.offsets.by_time import first_at
from mq.client.producer.producer import Producer
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import TOPIC, cluster
from tests.interop.conftest import JavaCluster
from tests.interop.our_client import FIRST, make_topic, read_all
from tests.waiting import until

pytestmark = pytest.mark.java

FUTURE = 4_000_000_000_000


class Filled(NamedTuple):
    """A queue with one message, a batch of three, and one message, at three different times."""

    session: Session
    address: str
    queue: MessageQueue
    times: list[int]

    async def search(self, timestamp: int, boundary: str | None = None) -> int:
        fields = {
            "topic": self.queue.topic,
            "queueId": str(self.queue.queue_id),
            "timestamp": str(timestamp),
        }
        if boundary is not None:
            fields["boundaryType"] = boundary
        request = Command(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        reply = await self.session.call(self.address, request)
        return int(reply.fields["offset"])


@asynccontextmanager
async def filled(namesrv: str, address: str, topic: str) -> AsyncIterator[Filled]:
    async with Session(namesrv) as session, Producer(session) as producer:
        await producer.send(Message(topic, b"0"))
        await asyncio.sleep(0.05)
        await producer.send_batch([Message(topic, b"%d" % number) for number in (1, 2, 3)])
        await asyncio.sleep(0.05)
        await producer.send(Message(topic, b"4"))
        messages = await read_all(session, topic, 5)
        (queue,) = await PullConsumer(session).queues(topic)
        times = [message.store_timestamp for message in messages]
        assert len(set(times)) == 3 and times[1] == times[3]
        yield Filled(session, address, queue, times)


@asynccontextmanager
async def at_java(java_cluster: JavaCluster, topic: str) -> AsyncIterator[Filled]:
    async with Session(java_cluster.namesrv) as session:
        await make_topic(java_cluster, session, topic, queues=1)
    async with filled(java_cluster.namesrv, java_cluster.broker, topic) as made:
        yield made


@asynccontextmanager
async def at_ours() -> AsyncIterator[Filled]:
    async with (
        cluster(queues=1) as ours,
        filled(ours.address, ours.pair.broker.address, TOPIC) as made,
    ):
        yield made


async def answers(queue: Filled, boundary: str | None) -> list[int]:
    """The results before, at and after each of the times, and for a future time."""
    first, batch, last = queue.times[0], queue.times[1], queue.times[4]
    moments = (first - 9000, first, first + 1, batch - 1, batch, batch + 1, last - 1, last, FUTURE)
    return [await queue.search(moment, boundary) for moment in moments]


def test_searches_with_a_boundary_match_java_5_and_without_one_match_4_9(
    java_cluster: JavaCluster,
) -> None:
    boundaries = (None,) if java_cluster.release == "4.9.7" else ("LOWER", "UPPER")
    nearest = [0, 0, 0, 1, 1, 3, 4, 4, 4]
    expected = {
        None: nearest,
        "LOWER": [0, 0, 1, 1, 1, 4, 4, 4, 5],
        "UPPER": [0, 0, 0, 0, 3, 3, 3, 4, 4],
    }

    async def scenario() -> None:
        async with at_java(java_cluster, "by-time") as java, at_ours() as ours:
            for boundary in boundaries:
                theirs = await answers(java, boundary)
                if boundary is None:
                    assert theirs[4] in (1, 2, 3)  # any message stored at that time
                    theirs[4] = 1
                assert theirs == expected[boundary] == await answers(ours, boundary), boundary

    asyncio.run(scenario())


def test_the_lower_bound_is_found_at_each_release(java_cluster: JavaCluster) -> None:
    async def scenario() -> None:
        async with at_java(java_cluster, "by-time-first") as java:
            admin, consumer = Admin(java.session), PullConsumer(java.session)
            batch, last = java.times[1], java.times[4]
            found = [
                await first_at(admin, consumer, java.address, java.queue, moment)
                for moment in (0, batch - 1, batch, batch + 1, last, last + 1, FUTURE)
            ]
        assert found == [0, 1, 1, 4, 4, 5, 5]

    asyncio.run(scenario())


@pytest.mark.parametrize("online", [True, False])
def test_a_reset_to_a_future_time_redelivers_nothing(
    java_cluster: JavaCluster, online: bool
) -> None:
    topic = f"by-time-reset-{online}"
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def scenario() -> None:
        async with at_java(java_cluster, topic) as java:
            admin = Admin(java.session)
            wanted = reset.OffsetReset(topic, "g", int(time.time() * 1000) + 3_600_000)

            async def complete() -> bool:
                return len(got) >= 5

            async def moved() -> list[int]:
                rows, failed = await reset.foresee(admin, wanted, 30.0)
                done = await reset.all_queues(admin, wanted)
                assert (failed, done.failures) == ({}, [])
                assert [row.new for row in rows] == [row.offset for row in done.moved]
                return [row.new for row in rows]

            async with Consumer(
                java_cluster.namesrv, "g", {topic: "*"}, listener=listen, consume_from=FIRST
            ) as consumer:
                await until(complete)
                await consumer.commit()
                if online:
                    assert await moved() == [5]
            if not online:
                assert await moved() == [5]
            committed = await admin.query_consumer_offset(java.address, "g", topic, 0)
        assert (committed, len(got)) == (5, 5)

    asyncio.run(scenario())
