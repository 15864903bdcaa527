"""Our consumers of each kind with Java's brokers, and in one group with Java's consumers."""

import asyncio
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.consumer.push.listener import RetryLater, SuspendQueue
from mq.client.errors import RouteNotFound
from mq.client.producer.producer import Producer
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.pull.subscription import Sql92
from mq.client.reader.rebalance import AllocateByConsistentHash, Strategy, allocate_in_circle
from mq.client.trace.entries import Pub, SubAfter, SubBefore, decode
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import TRACE_TOPIC, dead_letter_topic
from tests.interop import peers
from tests.interop.conftest import JavaCluster
from tests.interop.java_client import JavaClient
from tests.interop.our_client import FIRST, make_topic, many, read_all
from tests.interop.tools import warm_tool
from tests.waiting import until

pytestmark = pytest.mark.java


class Listener:
    """Records its messages; a body fails as often as the test demands."""

    def __init__(self, error: Exception | None = None, **failures: int) -> None:
        self.got: list[StoredMessage] = []
        self._error = error
        self._failures = failures

    async def __call__(self, message: StoredMessage) -> None:
        self.got.append(message)
        body = message.body.decode()
        if self._error is not None and self._failures.get(body, 0) > 0:
            self._failures[body] -= 1
            raise self._error

    async def have(self, count: int) -> None:
        async def complete() -> bool:
            return len(self.got) >= count

        await until(complete, 60)


def test_ordered_members_hand_over_queues_without_breaking_the_order(
    java_cluster: JavaCluster,
) -> None:
    topic, group = "push-ordered", "push-ordered-g"

    async def scenario() -> None:
        listener = Listener(SuspendQueue(0.05), **{"7": 2})
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic)
            queues = await sender.prepare(topic)

            def member(name: str) -> Consumer:
                return Consumer(
                    java_cluster.namesrv,
                    group,
                    {topic: "*"},
                    listener=listener,
                    ordered=True,
                    consume_from=FIRST,
                    instance=name,
                )

            async with member("first") as first:
                for number, message in enumerate(many(topic, 40)):
                    await sender.send(message, queues[number % 4])
                await listener.have(42)
                async with member("second") as second:

                    async def shared() -> bool:
                        ours = [
                            [q for q in m.assigned if q.topic == topic] for m in (first, second)
                        ]
                        return [len(queues) for queues in ours] == [2, 2]

                    await until(shared, 60)
                    for number, message in enumerate(many(topic, 80)[40:]):
                        await sender.send(message, queues[number % 4])
                    await listener.have(82)
        offsets: dict[int, list[int]] = defaultdict(list)
        for got in listener.got:
            offsets[got.queue_id].append(got.queue_offset)
        assert {queue: list(dict.fromkeys(seen)) for queue, seen in offsets.items()} == {
            queue: list(range(20)) for queue in range(4)
        }
        assert Counter(message.body for message in listener.got)[b"7"] == 3

    asyncio.run(scenario())


def test_broadcast_members_each_get_everything_and_continue_from_their_files(
    java_cluster: JavaCluster, tmp_path: Path
) -> None:
    topic, group = "push-broadcast", "push-broadcast-g"

    async def scenario() -> None:
        listeners = {"a": Listener(), "b": Listener()}

        def member(name: str) -> Consumer:
            return Consumer(
                java_cluster.namesrv,
                group,
                {topic: "*"},
                listener=listeners[name],
                broadcasting=True,
                consume_from=FIRST,
                instance=name,
                offset_directory=tmp_path,
            )

        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic)
            async with member("a"), member("b"):
                for message in many(topic, 10):
                    await sender.send(message)
                for listener in listeners.values():
                    await listener.have(10)
            await sender.send(Message(topic, b"later"))
            async with member("a"):
                await listeners["a"].have(11)
        assert [message.body for message in listeners["a"].got[10:]] == [b"later"]
        assert len(listeners["b"].got) == 10

    asyncio.run(scenario())


def test_the_broker_evaluates_subscriptions_by_sql_and_by_tag(
    java_cluster: JavaCluster,
) -> None:
    numbers, tags = "push-sql", "push-sql-tags"

    async def scenario() -> None:
        listener = Listener()
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            settings = {"enablePropertyFilter": "true"}
            await Admin(session).update_broker_config(java_cluster.broker, settings)
            for topic in (numbers, tags):
                await make_topic(java_cluster, session, topic)
            for number in range(8):
                properties = {"amount": str(number)}
                await sender.send(Message(numbers, b"%d" % number, properties=properties))
                await sender.send(
                    Message(tags, b"tag %d" % number, "even" if number % 2 else "odd")
                )
            subscriptions = {numbers: Sql92("amount > 2 AND amount <= 5"), tags: "even"}
            async with Consumer(
                java_cluster.namesrv,
                "push-sql-g",
                subscriptions,
                listener=listener,
                consume_from=FIRST,
            ):
                await listener.have(7)
            lite = LitePullConsumer(
                java_cluster.namesrv,
                "push-sql-lite-g",
                {numbers: Sql92("amount IN ('1', '2') OR amount = 7")},
                consume_from=FIRST,
            )
            polled: list[bytes] = []
            async with lite, asyncio.timeout(60):
                while len(polled) < 3:
                    polled += [message.body for message in await lite.poll()]
        assert sorted(message.body for message in listener.got) == sorted(
            [b"3", b"4", b"5", *(b"tag %d" % number for number in (1, 3, 5, 7))]
        )
        assert sorted(polled) == [b"1", b"2", b"7"]

    asyncio.run(scenario())


def test_a_message_that_fails_too_often_becomes_a_dead_letter(java_cluster: JavaCluster) -> None:
    topic, group = "push-retry", "push-retry-g"

    async def scenario() -> None:
        listener = Listener(RetryLater(1), bad=9)
        in_order = Listener(SuspendQueue(0.05), bad=9)
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic, queues=1)
            await sender.send(Message(topic, b"bad"))
            await sender.send(Message(topic, b"good"))
            for ordered, got in ((False, listener), (True, in_order)):
                name = f"{group}-{ordered}"
                async with Consumer(
                    java_cluster.namesrv,
                    name,
                    {topic: "*"},
                    listener=got,
                    ordered=ordered,
                    max_reconsume_times=1,
                    consume_from=FIRST,
                ):
                    (dead,) = await read_all(session, dead_letter_topic(name), 1)
                    await got.have(3)
                assert dead.body == b"bad"
                bodies = Counter((message.body, message.topic) for message in got.got)
                assert bodies == {(b"bad", topic): 2, (b"good", topic): 1}

    asyncio.run(scenario())


@pytest.mark.parametrize("release", peers.CLIENT_RELEASES)
@pytest.mark.parametrize(
    ("mode", "strategy"), [("circle", allocate_in_circle), ("hash", AllocateByConsistentHash())]
)
def test_our_members_and_a_java_member_agree_on_the_assignment(
    java_cluster: JavaCluster, release: str, mode: str, strategy: Strategy, tmp_path: Path
) -> None:
    topic = f"push-{mode}-{release[0]}"
    group = f"{topic}-g"

    async def scenario() -> None:
        listener = Listener()
        async with Session(java_cluster.namesrv) as session, Producer(session) as sender:
            await make_topic(java_cluster, session, topic, queues=8)
            with JavaClient(release, java_cluster.namesrv, tmp_path) as java:
                await asyncio.to_thread(java.consume, "member", group, topic, "*", mode)
                async with Consumer(
                    java_cluster.namesrv,
                    group,
                    {topic: "*"},
                    listener=listener,
                    strategy=strategy,
                    consume_from=FIRST,
                    instance="ours",
                ) as consumer:
                    broker = java_cluster.broker_name
                    queues = [MessageQueue(topic, broker, number) for number in range(8)]
                    members: list[str] = []

                    async def agreed() -> bool:
                        members[:] = await Admin(session).consumer_ids(java_cluster.broker, group)
                        ours = consumer.session.client_id
                        expected = {q.queue_id for q in strategy(ours, queues, members)}
                        mine = {q.queue_id for q in consumer.assigned if q.topic == topic}
                        await asyncio.to_thread(java, "rebalance", "member")
                        theirs = await asyncio.to_thread(java.queues, "member")
                        return (
                            len(members) == 2
                            and mine == expected
                            and mine | theirs == set(range(8))
                            and not mine & theirs
                        )

                    await until(agreed, 60)
                    for number, message in enumerate(many(topic, 40)):
                        await sender.send(message, queues[number % 8])
                    mine = {q.queue_id for q in consumer.assigned if q.topic == topic}
                    await listener.have(5 * len(mine))
                    theirs = await asyncio.to_thread(java.got, "member", 40 - 5 * len(mine))
                    assert {message.queue_id for message in listener.got} == mine
                    assert {message.queue_id for message in theirs} == set(range(8)) - mine
                await asyncio.to_thread(java.stop_consumer, "member")

    asyncio.run(scenario())


def test_mqadmin_reads_our_traces(java_cluster: JavaCluster) -> None:
    topic, group = "push-trace", "push-trace-g"

    async def scenario() -> None:
        listener = Listener()
        namesrv = java_cluster.namesrv
        async with Session(namesrv) as session:
            await make_topic(java_cluster, session, topic)
            async with Producer(namesrv, "push-trace-p", trace=True) as sender:
                sent = await sender.send(Message(topic, b"x", "red", ["needle"]))
            async with Consumer(
                namesrv, group, {topic: "*"}, listener=listener, consume_from=FIRST, trace=True
            ):
                await listener.have(1)
            puller = PullConsumer(session)

            async def complete() -> bool:
                try:
                    queues = await puller.queues(TRACE_TOPIC)
                except RouteNotFound:
                    return False
                records = [
                    record
                    for queue in queues
                    async for message in puller.read(queue)
                    for record in decode(message.body)
                    if record.message_id == sent.message_id
                ]
                return {type(record) for record in records} == {Pub, SubBefore, SubAfter}

            await until(complete)

            async def read() -> bool:
                shown = await asyncio.to_thread(
                    warm_tool(java_cluster.release),
                    *("queryMsgTraceById", "-n", namesrv, "-i", sent.message_id),
                )
                return group in shown and "push-trace-p" in shown

            await until(read, 60)

    asyncio.run(scenario())
