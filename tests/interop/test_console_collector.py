"""The console's collector with Java brokers: its figures equal those of the commands."""

import asyncio

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.console.collector import offsets_text
from mq.daemons.console.collector.collector import Collector
from mq.protocol.bodies import ConsumeStats, SubscriptionGroupConfig, TopicConfig, TopicStatsTable
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.daemons.console.pages.state import seen
from tests.interop.conftest import JavaCluster

pytestmark = pytest.mark.java

TOPIC, GROUP = "CollectedTopic", "CollectedGroup"


async def _fill(java: JavaCluster) -> None:
    """Send messages; the group has not consumed those of one queue."""
    async with Session(java.namesrv) as session:
        admin = Admin(session)
        topic = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        await admin.create_topic(java.broker, topic)
        await admin.update_subscription_group(
            java.broker, SubscriptionGroupConfig(group_name=GROUP)
        )
        async with Producer(java.namesrv, "CollectedProducers") as producer:
            for number in range(12):
                await producer.send(Message(TOPIC, b"%d" % number))
        await admin.update_consumer_offset(java.broker, GROUP, TOPIC, 0, 0)


def test_brokers_topics_groups_and_clients_of_java_are_collected(java_cluster: JavaCluster) -> None:
    java = java_cluster

    async def main() -> None:
        await _fill(java)
        async with (
            Producer(java.namesrv, "CollectedProducers") as producer,
            Consumer(java.namesrv, "CollectedMembers", {TOPIC: "*"}),
            Collector(java.namesrv, timeout=30.0) as collector,
        ):
            await producer.send(Message(TOPIC, b"last"))
            found = await seen(
                collector,
                lambda s: (
                    any(one.group == "CollectedProducers" for one in s.producers)
                    and any(one.group == "CollectedMembers" for one in s.consumers)
                    and any(one.name == GROUP and one.lag is not None for one in s.groups)
                    and any(one.name == TOPIC and one.stored == 13 for one in s.topics)
                ),
            )
            broker = found.broker(java.broker_name, 0)
            assert broker is not None
            assert broker.alive
            assert broker.version == "V" + java.release.replace(".", "_")
            assert broker.disk_used is not None
            topic = found.topic(TOPIC)
            assert topic is not None
            assert (topic.queues, topic.perm, topic.brokers) == (4, 6, (java.broker_name,))
            async with Session(java.namesrv) as session:
                stats = await Admin(session).consume_stats(java.broker, GROUP)
            lag = sum(o.broker_offset - o.consumer_offset for o in stats.offset_table.values())
            group = found.group(GROUP)
            assert group is not None
            assert group.lag == lag > 0
            assert not found.problems

    asyncio.run(main())


def test_the_pattern_finds_the_offsets_that_the_decoder_finds(
    java_cluster: JavaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = java_cluster

    async def main() -> None:
        await _fill(java)
        async with Session(java.namesrv) as session:
            progress = await session.call(
                java.broker, Command(RequestCode.GET_CONSUME_STATS, {"consumerGroup": GROUP})
            )
            bounds = await session.call(
                java.broker, Command(RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC})
            )
        slow = ConsumeStats.decode(progress.body).offset_table
        table = TopicStatsTable.decode(bounds.body).offset_table.values()
        monkeypatch.setattr(offsets_text, "read", None)  # the pattern must work without it
        assert {
            (one.topic, one.queue): (one.end, one.place, one.consumed_at)
            for one in offsets_text.progress(progress.body, java.broker)
        } == {
            (q.topic, q.queue_id): (o.broker_offset, o.consumer_offset, o.last_timestamp)
            for q, o in slow.items()
        }
        found = offsets_text.bounds(bounds.body, java.broker)
        assert found.queues == len(table) == 4
        assert found.stored == sum(one.max_offset - one.min_offset for one in table)

    asyncio.run(main())
