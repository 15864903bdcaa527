"""Our client with the Java name server and broker, and together with Java's consumers."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.consumer.options import ConsumeOptions
from mq.client.errors import ConsumerNotOnline, RemoteSystemError, RouteNotFound
from mq.client.options import ClientOptions, Serialization
from mq.client.producer.producer import Producer, SendStatus
from mq.client.pull.pull_consumer import PullConsumer, PullStatus
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.codes import LanguageCode
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import retry_topic
from tests.interop import peers
from tests.interop.conftest import JavaCluster
from tests.interop.our_client import FIRST, make_topic, many, read_all
from tests.interop.tools import warm_tool
from tests.waiting import until

pytestmark = pytest.mark.java


def test_messages_sent_in_every_way_are_stored_as_sent(java_cluster: JavaCluster) -> None:
    topic = "client-send"

    async def scenario() -> None:
        async with Session(java_cluster.namesrv) as session, Producer(session, "senders") as sender:
            await make_topic(java_cluster, session, topic)
            queues = await sender.prepare(topic)
            plain = await sender.send(Message(topic, b"plain", "red", ["k1", "k2"], {"who": "me"}))
            large = await sender.send(Message(topic, b"large " * 2000), queues[1])
            chosen = await sender.send(Message(topic, b"chosen"), selector=lambda some, _: some[3])
            parts = [Message(topic, b"part %d" % i, keys=[f"p{i}"]) for i in range(3)]
            batch = await sender.send_batch(parts, queues[2])
            await sender.send_oneway(Message(topic, b"oneway"))
            submitted = await asyncio.gather(*(sender.submit(m) for m in many(topic, 50)))

            assert plain.status is SendStatus.SEND_OK
            assert large.queue == MessageQueue(topic, java_cluster.broker_name, 1)
            assert chosen.queue.queue_id == 3
            assert len(set(batch.message_id.split(","))) == 3
            assert len({(r.queue.queue_id, r.queue_offset) for r in submitted}) == 50

            stored = await read_all(session, topic, 57)
            by_body = {message.body: message for message in stored}
            assert len(stored) == len(by_body) == 57
            first = by_body[b"plain"]
            assert (first.tags, first.keys, first.message_id, first.offset_id) == (
                *("red", ("k1", "k2")),
                *(plain.message_id, plain.offset_message_id),
            )
            assert first.properties["who"] == "me"
            assert by_body[b"large " * 2000].store_size < 1000  # it was sent compressed
            assert [by_body[b"part %d" % i].queue_offset for i in range(3)] == [
                batch.queue_offset + i for i in range(3)
            ]
            assert b"oneway" in by_body

    asyncio.run(scenario())


@pytest.mark.parametrize("form", Serialization)
def test_java_understands_requests_in_either_serialization(
    java_cluster: JavaCluster, form: Serialization
) -> None:
    topic, group = f"client-form-{form}", f"client-form-{form}-g"

    async def scenario() -> None:
        client = ClientOptions(serialization=form)
        async with Session(java_cluster.namesrv, client) as session:
            await make_topic(java_cluster, session, topic)
            async with Producer(session) as sender:
                plain = await sender.send(Message(topic, b"1", "red", ["k"], {"who": "mé"}))
                await sender.send_batch([Message(topic, b"2"), Message(topic, b"3")])
                await sender.send_oneway(Message(topic, b"4"))
            by_body = {message.body: message for message in await read_all(session, topic, 4)}
            first = by_body[b"1"]
            assert (first.message_id, first.properties["who"]) == (plain.message_id, "mé")
        got: set[bytes] = set()
        options = ConsumeOptions(consume_from=FIRST)
        async with Consumer(
            java_cluster.namesrv, group, {topic: "*"}, options, client=client
        ) as consumer:
            async for message in consumer:
                got.add(message.body)
                if len(got) == 4:
                    break
        assert got == set(by_body)

    asyncio.run(scenario())


def test_the_first_message_creates_its_topic_at_java(java_cluster: JavaCluster) -> None:
    async def scenario() -> None:
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            result = await sender.send(Message("client-created", b"first"))
            assert result.status is SendStatus.SEND_OK
            assert len(await read_all(session, "client-created", 1)) == 1

    asyncio.run(scenario())


def test_messages_are_found_by_key_and_by_both_ids(java_cluster: JavaCluster) -> None:
    topic = "client-query"

    async def scenario() -> None:
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic)
            sent = await sender.send(Message(topic, b"wanted", keys=["needle"]))
            await sender.send(Message(topic, b"other", keys=["hay"]))
            admin = Admin(session)

            async def indexed() -> bool:
                return bool(await admin.find_by_key(topic, "needle"))

            await until(indexed)
            (by_key,) = await admin.find_by_key(topic, "needle")
            (by_id,) = await admin.find_by_unique_id(topic, sent.message_id, now=time.time())
            by_place = await admin.find_by_offset_id(sent.offset_message_id)
            assert by_key == by_id == by_place
            assert by_key.body == b"wanted"
            assert await admin.find_by_key(topic, "nothing") == []
            with pytest.raises(RemoteSystemError):
                await admin.view_message(java_cluster.broker, 1 << 40)

    asyncio.run(scenario())


def test_a_group_gets_each_message_once_and_continues_where_it_stopped(
    java_cluster: JavaCluster,
) -> None:
    topic, group = "client-group", "client-group-g"

    async def consume(count: int) -> list[bytes]:
        bodies = []
        async with Consumer(
            java_cluster.namesrv, group, {topic: "*"}, consume_from=FIRST
        ) as consumer:
            async with asyncio.timeout(60):
                async for message in consumer:
                    bodies.append(message.body)
                    if len(bodies) == count:
                        consumer_done = asyncio.ensure_future(consumer.close())
            await consumer_done
        return bodies

    async def scenario() -> None:
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic)
            for message in many(topic, 100):
                await sender.send(message)
            assert sorted(await consume(100)) == sorted(b"%d" % i for i in range(100))
            stats = await Admin(session).whole_consume_stats(group, topic)
            assert (
                sum(row.broker_offset - row.consumer_offset for row in stats.offset_table.values())
                == 0
            )
            await sender.send(Message(topic, b"later"))
            assert await consume(1) == [b"later"]

    asyncio.run(scenario())


def test_only_messages_with_a_subscribed_tag_are_delivered(java_cluster: JavaCluster) -> None:
    topic = "client-tags"

    async def scenario() -> None:
        got: list[str | None] = []
        done = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            got.append(message.tags)
            if len(got) == 6:
                done.set()

        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic)
            for tag in ("red", "green", "blue") * 3:
                await sender.send(Message(topic, b"x", tag))
            async with Consumer(
                java_cluster.namesrv,
                "client-tags-g",
                {topic: "red || blue"},
                listener=listen,
                consume_from=FIRST,
            ):
                async with asyncio.timeout(60):
                    await done.wait()
        assert Counter(got) == {"red": 3, "blue": 3}

    asyncio.run(scenario())


def test_a_message_for_a_later_retry_is_redelivered(java_cluster: JavaCluster) -> None:
    topic = "client-retry"

    async def scenario() -> None:
        seen: list[tuple[str, int]] = []
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic, queues=1)
            sent = await sender.send(Message(topic, b"difficult"))
            async with Consumer(
                java_cluster.namesrv, "client-retry-g", {topic: "*"}, consume_from=FIRST
            ) as consumer:
                async with asyncio.timeout(40):
                    async for message in consumer:
                        assert message.message_id == sent.message_id
                        seen.append((message.topic, message.reconsume_times))
                        if message.reconsume_times:
                            break
                        await consumer.retry_later(message, delay_level=1)
        assert seen == [(topic, 0), (topic, 1)]

    asyncio.run(scenario())


@pytest.mark.parametrize("release", peers.CLIENT_RELEASES)
def test_our_consumer_shares_a_group_with_a_java_consumer(
    java_cluster: JavaCluster, release: str, tmp_path: Path
) -> None:
    topic, group = f"client-share-{release[0]}", f"client-share-g-{release[0]}"

    async def scenario() -> None:
        ours: list[tuple[int, bytes]] = []

        async def listen(message: StoredMessage) -> None:
            ours.append((message.queue_id, message.body))

        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic, queues=8)
            java = peers.JavaProgram(
                release, "Consume.java", java_cluster.namesrv, group, topic, tmp=tmp_path
            )
            with java:
                async with Consumer(
                    java_cluster.namesrv, group, {topic: "*"}, listener=listen, consume_from=FIRST
                ) as consumer:
                    java_id = java.lines[0].split()[1]
                    await until_shared(java_cluster, session, consumer, topic, java_id)
                    for number in range(80):
                        queue = MessageQueue(topic, java_cluster.broker_name, number % 8)
                        await sender.send(Message(topic, b"%d" % number), queue)
                    # The broker refuses a Java member whose heartbeat coincides with a rebalance
                    # until its next heartbeat, 30 s later (sendHeartbeatToAllBrokerWithLock).
                    rows = await asyncio.to_thread(java.wait_for_line, "GOT", 60, 40)
                    theirs = [(int(row.split()[2]), row.split()[6].encode()) for row in rows]

                    async def all_here() -> bool:
                        return len(ours) >= 40

                    await until(all_here)
            assert sorted(body for _, body in ours + theirs) == sorted(
                b"%d" % number for number in range(80)
            )
            assert not {queue for queue, _ in ours} & {queue for queue, _ in theirs}

    asyncio.run(scenario())


async def until_shared(
    cluster: JavaCluster, session: Session, consumer: Consumer, topic: str, java_id: str
) -> None:
    """Wait until both members know each other, and no queue has two owners."""
    admin = Admin(session)

    async def shared() -> bool:
        ours = {queue for queue in consumer.assigned if queue.topic == topic}
        try:
            info = await admin.consumer_running_info(cluster.broker, consumer.group, java_id)
        except (RemoteSystemError, ConsumerNotOnline):
            return False
        theirs = {queue for queue in info.mq_table if queue.topic == topic}
        return len(ours) == len(theirs) == 4 and not ours & theirs

    await until(shared)


def test_a_java_consumer_gets_what_we_send(java_cluster: JavaCluster, tmp_path: Path) -> None:
    topic = "client-to-java"

    async def scenario() -> None:
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic)
            arguments = (java_cluster.namesrv, "client-to-java-g", topic, "wanted")
            with peers.JavaProgram("4.9.8", "Consume.java", *arguments, tmp=tmp_path) as java:
                ids = [
                    (await sender.send(Message(topic, b"large" * 1000, "wanted"))).message_id,
                    (await sender.send(Message(topic, b"small", "wanted"))).message_id,
                    (await sender.send_batch([Message(topic, b"batch", "wanted")])).message_id,
                ]
                await sender.send(Message(topic, b"small", "unwanted"))
                rows = await asyncio.to_thread(java.wait_for_line, "GOT", 30, 3)
            assert sorted(row.split()[4] for row in rows) == sorted(ids)

    asyncio.run(scenario())


def test_mqadmin_resets_the_offsets_of_our_consumer(java_cluster: JavaCluster) -> None:
    topic, group = "client-reset", "client-reset-g"

    async def scenario() -> None:
        got: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            got.append(message.body)

        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic)
            before = int(time.time() * 1000)
            for message in many(topic, 8):
                await sender.send(message)
            async with Consumer(
                java_cluster.namesrv, group, {topic: "*"}, listener=listen, consume_from=FIRST
            ) as consumer:

                async def have(count: int) -> None:
                    async def complete() -> bool:
                        return len(got) >= count

                    await until(complete)

                await have(8)
                await consumer.commit()
                await asyncio.to_thread(
                    warm_tool(java_cluster.release),
                    *("resetOffsetByTime", "-n", java_cluster.namesrv),
                    *("-g", group, "-t", topic, "-s", str(before - 1000)),
                )
                await have(16)
        assert Counter(got) == {b"%d" % number: 2 for number in range(8)}

    asyncio.run(scenario())


def test_mqadmin_shows_the_status_of_our_consumer(java_cluster: JavaCluster) -> None:
    topic, group = "client-status", "client-status-g"

    async def scenario() -> None:
        async with Session(java_cluster.namesrv) as session:
            await make_topic(java_cluster, session, topic)
            async with Consumer(java_cluster.namesrv, group, {topic: "*"}) as consumer:

                async def assigned() -> bool:
                    return len(consumer.assigned) == 5

                await until(assigned)
                page = await asyncio.to_thread(
                    warm_tool(java_cluster.release),
                    *("consumerStatus", "-n", java_cluster.namesrv, "-g", group),
                    *("-i", consumer.session.client_id, "-s", "true"),
                )
                assert "PROP_CLIENT_VERSION" in page
                assert topic in page
                (member,) = (await Admin(session).group_connection(group)).connection_set
                assert member.client_id == consumer.session.client_id
                assert member.language is LanguageCode.PYTHON
            with pytest.raises((ConsumerNotOnline, RouteNotFound)):
                await Admin(session).group_connection(group)
            assert await session.route(retry_topic(group))

    asyncio.run(scenario())


def test_ordered_consumption_keeps_the_order_of_each_queue(java_cluster: JavaCluster) -> None:
    topic = "client-ordered"

    async def scenario() -> None:
        got: dict[int, list[bytes]] = {}
        refused: list[StoredMessage] = []
        done = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            if message.body == b"3" and not refused:
                refused.append(message)
                raise ValueError("not yet")
            got.setdefault(message.queue_id, []).append(message.body)
            if sum(map(len, got.values())) == 20:
                done.set()

        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic, queues=2)
            queues = await sender.prepare(topic)
            for message in many(topic, 20):
                await sender.send(message, queues[int(message.body) % 2])
            async with Consumer(
                java_cluster.namesrv,
                "client-ordered-g",
                {topic: "*"},
                listener=listen,
                ordered=True,
                consume_from=FIRST,
            ) as consumer:
                async with asyncio.timeout(60):
                    await done.wait()
                stolen = await Admin(session).lock_queues(
                    java_cluster.broker, consumer.group, "another client", queues
                )
                assert stolen == set()  # they are locked for our consumer
        assert got == {q: [b"%d" % n for n in range(20) if n % 2 == q] for q in (0, 1)}
        assert len(refused) == 1

    asyncio.run(scenario())


def test_a_blocking_session_works_without_an_event_loop(java_cluster: JavaCluster) -> None:
    topic = "client-blocking"

    async def commands(session: BlockingSession) -> list[bytes]:
        admin = Admin(session)
        config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
        await admin.create_topic(java_cluster.broker, config)
        route = await admin.topic_route("TBW102")
        assert [broker.broker_name for broker in route.broker_datas] == [java_cluster.broker_name]
        deadline = time.monotonic() + 60
        while topic not in (await admin.topic_list()).topic_list:
            assert time.monotonic() < deadline
        puller = PullConsumer(session)
        (queue,) = await puller.queues(topic)
        result = await puller.pull(queue, 0)
        assert result.status is PullStatus.NO_NEW
        return [message.body async for message in puller.read(queue)]

    with BlockingSession(java_cluster.namesrv) as session:
        assert run(commands(session)) == []
