"""Consumers with push sessions, with real snodes and a real broker."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.client import AccessKey, Consumer, Producer, PushConsumer
from mq.client.snode import pushes
from mq.daemons.snode.app import Snode
from mq.daemons.snode.push.service import SlowConsumerPolicy
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.message import Message, StoredMessage
from tests.daemons.broker.acl.accounts import home
from tests.daemons.broker.acl.guarded import ACCOUNTS, MINE, SigningPeer, send_fields
from tests.daemons.peer import Peer
from tests.daemons.snode.world import World, snode_settings, world
from tests.waiting import until

TOPIC = "Orders"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Seen:
    """The messages that members of a group received, by queue."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.bodies: Counter[bytes] = Counter()
        self.by_member: Counter[str] = Counter()

    def listener(self, name: str = "") -> Callable[[StoredMessage], Awaitable[None]]:
        async def listen(message: StoredMessage) -> None:
            self.offsets[message.broker_name, message.queue_id].append(message.queue_offset)
            self.bodies[bytes(message.body)] += 1
            self.by_member[name] += 1

        return listen


def push_consumer(one: World, seen: Seen, name: str = "", **options: object) -> PushConsumer:
    return PushConsumer(
        one.name_server.address,
        "billing",
        {TOPIC: "*"},
        listener=seen.listener(name),
        consume_from=FIRST,
        **options,  # type: ignore[arg-type]
    )


async def sessions_of(snode: Snode, queues: int) -> None:
    await until(lambda: snode.sessions.queues == queues)


def test_messages_are_pushed_and_nothing_is_pulled_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        seen = Seen()
        async with world(tmp_path) as one:
            await one.make_topic(TOPIC)
            async with (
                push_consumer(one, seen),
                Producer(one.name_server.address, snode=True) as producer,
            ):
                await sessions_of(one.snode, 4)
                sent: Counter[bytes] = Counter()
                for number in range(400):
                    body = b"%d" % number
                    await producer.send(Message(TOPIC, body))
                    sent[body] += 1
                await until(lambda: seen.bodies.total() >= 400)
                assert seen.bodies == sent
                assert one.snode.push.counts["pushed"] == 400
                for offsets in seen.offsets.values():
                    assert offsets == list(range(100))

    asyncio.run(main())


def test_batches_tags_and_retries_reach_a_consumer_with_a_push_session(tmp_path: Path) -> None:
    async def main() -> None:
        got: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            if message.body == b"again" and not message.reconsume_times:
                raise ValueError("not the first time")
            got.append(message.body)

        levels = {"messageDelayLevel": "1s 1s 1s 1s"}
        async with world(tmp_path, brokers=levels) as one:
            await one.make_topic(TOPIC, queues=1)
            async with (
                PushConsumer(
                    one.name_server.address,
                    "billing",
                    {TOPIC: "paid"},
                    listener=listen,
                    consume_from=FIRST,
                ),
                Producer(one.name_server.address, snode=True) as producer,
            ):
                await sessions_of(one.snode, 1)
                for _ in range(3):
                    await producer.send(Message(TOPIC, b"other", tags="other"))
                await producer.send(Message(TOPIC, b"again", tags="paid"))
                await producer.send_batch(
                    [Message(TOPIC, b"%d" % number, tags="paid") for number in range(5)]
                )
                await producer.send(Message(TOPIC, b"late", tags="paid", delay_level=1))
                await until(lambda: len(got) >= 7)
                assert Counter(got) == Counter(
                    [b"again", b"late", *(b"%d" % number for number in range(5))]
                )

    asyncio.run(main())


def test_members_with_push_sessions_and_members_that_pull_share_a_group(tmp_path: Path) -> None:
    async def main() -> None:
        seen = Seen()
        async with world(tmp_path) as one, AsyncExitStack() as members:
            await one.make_topic(TOPIC, queues=6)
            for name in ("pushed 1", "pushed 2"):
                await members.enter_async_context(push_consumer(one, seen, name))
            pulling = Consumer(
                one.name_server.address,
                "billing",
                {TOPIC: "*"},
                listener=seen.listener("pulls"),
                consume_from=FIRST,
                snode=True,
            )
            await members.enter_async_context(pulling)
            await until(lambda: len([q for q in pulling.assigned if q.topic == TOPIC]) == 2)
            await sessions_of(one.snode, 4)
            async with Producer(one.name_server.address, snode=True) as producer:
                for number in range(300):
                    await producer.send(Message(TOPIC, b"%d" % number))
            await until(lambda: seen.bodies.total() >= 300)
            assert seen.bodies == Counter(b"%d" % number for number in range(300))
            assert seen.by_member == {"pushed 1": 100, "pushed 2": 100, "pulls": 100}

    asyncio.run(main())


def test_messages_sent_directly_to_the_broker_arrive_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushes, "PUSH_PATIENCE_SECONDS", 0.2)

    async def main() -> None:
        seen = Seen()
        async with world(tmp_path) as one:
            await one.make_topic(TOPIC, queues=2)
            namesrv = one.name_server.address
            async with (
                push_consumer(one, seen, ordered=True),
                Producer(namesrv, snode=True) as through,
                Producer(namesrv) as past,
            ):
                await sessions_of(one.snode, 2)
                sends = [
                    (past if number % 3 == 0 else through).send(Message(TOPIC, b"%d" % number))
                    for number in range(300)
                ]
                await asyncio.gather(*sends)
                await until(lambda: seen.bodies.total() >= 300)
        assert all(count == 1 for count in seen.bodies.values())
        for offsets in seen.offsets.values():
            assert offsets == list(range(len(offsets)))

    asyncio.run(main())


def test_delivery_continues_when_one_of_two_snodes_stops_and_returns(tmp_path: Path) -> None:
    async def main() -> None:
        seen = Seen()
        async with world(tmp_path) as one, AsyncExitStack() as stack:
            await one.make_topic(TOPIC, queues=4)
            namesrv = one.name_server.address
            second = Snode(snode_settings(namesrv, snodeName="snode-b"))
            second_parts = AsyncExitStack()
            await second_parts.enter_async_context(second)
            await until(lambda: len(one.name_server.snodes) == 2)
            await stack.enter_async_context(push_consumer(one, seen))
            producer = await stack.enter_async_context(
                Producer(namesrv, snode=True, timeout=20.0, retries=10)
            )
            await until(lambda: second.sessions.queues == 4 and one.snode.sessions.queues == 4)

            async def send(numbers: range) -> None:
                for number in numbers:
                    await producer.send(Message(TOPIC, b"%d" % number))

            await send(range(100))
            assert second.push.counts["pushed"] > 0 < one.snode.push.counts["pushed"]
            sending = asyncio.create_task(send(range(100, 600)))
            await until(lambda: seen.bodies.total() >= 200)
            await second_parts.aclose()
            await sending
            await until(lambda: len(seen.bodies) >= 600)
        assert seen.bodies.keys() == {b"%d" % number for number in range(600)}

    asyncio.run(main())


@pytest.mark.parametrize("policy", list(SlowConsumerPolicy))
def test_a_consumer_that_is_slow_for_a_while_gets_everything_in_order(
    tmp_path: Path, policy: SlowConsumerPolicy
) -> None:
    async def main() -> None:
        seen = Seen()
        go_on = asyncio.Event()
        consume = seen.listener()

        async def listen(message: StoredMessage) -> None:
            if message.queue_offset == 20:
                await go_on.wait()
            await consume(message)

        slow = {"slowConsumerThreshold": "50", "slowConsumerPolicy": policy.value}
        async with world(tmp_path, snode_is=slow) as one:
            await one.make_topic(TOPIC, queues=1)
            namesrv = one.name_server.address
            consumer = PushConsumer(
                namesrv, "billing", {TOPIC: "*"}, listener=listen, ordered=True, consume_from=FIRST
            )
            async with consumer, Producer(namesrv, snode=True) as producer:
                await sessions_of(one.snode, 1)

                async def send(count: int) -> None:
                    for _ in range(count):
                        await producer.send(Message(TOPIC, b"x"))

                await send(30)
                await consumer.commit()  # the snode knows its position, and may consider it slow
                await send(170)
                counts = one.snode.push.counts
                assert counts["slow"] == 1
                go_on.set()
                await until(lambda: seen.bodies.total() >= 200)
                await consumer.commit()
                await sessions_of(one.snode, 1)  # it is back, where its session was closed
                before = counts["pushed"]
                await send(20)
                await until(lambda: seen.bodies.total() >= 220)
                assert counts["pushed"] - before == 20
        assert seen.offsets["broker-a", 0] == list(range(220))

    asyncio.run(main())


def test_a_client_of_the_seed_gets_bodies_of_the_queues_that_it_names_by_number(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic(TOPIC, queues=2)
            subscription = SubscriptionData(topic=TOPIC, sub_string="*", queue_id_set={1})
            consumer = ConsumerData(
                group_name="old",
                consume_type=ConsumeType.CONSUME_PUSH,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=FIRST,
                subscription_data_set=[subscription],
            )
            heartbeat = HeartbeatData(client_id="c", consumer_data_set=[consumer])
            reply = await peer.ask(RequestCode.HEART_BEAT, {}, heartbeat.encode())
            assert reply.code == 0
            async with Producer(one.name_server.address, snode=True) as producer:
                for number, queue in enumerate(await producer.prepare(TOPIC)):
                    await producer.send(Message(TOPIC, b"%d" % number), queue)
            while (command := await peer.pushed_command()).code != SnodeCode.PUSH_MESSAGE:
                assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert (command.code, command.body) == (SnodeCode.PUSH_MESSAGE, b"1")
            assert command.fields == {"queueOffset": "0", "topic": TOPIC, "queueId": "1"}

    asyncio.run(main())


def test_messages_without_read_permission_are_not_pushed(tmp_path: Path) -> None:
    async def main() -> None:
        key = tmp_path / "key.yml"
        key.write_text("accessKey: administrator\nsecretKey: admin_secret\n")
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        signs = {**guarded, "enodeAclFile": str(key)}
        async with world(tmp_path, brokers=guarded, snode_is=signs) as one:
            for topic in ("mine", "secret"):
                await one.make_topic(topic, queues=1)
            subscriptions = [
                SubscriptionData(
                    topic=topic, message_queue_set={MessageQueue(topic, "broker-a", 0)}
                )
                for topic in ("mine", "secret")
            ]
            async with SigningPeer(one.port, MINE) as peer:
                for subscribed, code in (
                    (subscriptions, ResponseCode.NO_PERMISSION),
                    (subscriptions[1:], ResponseCode.NO_PERMISSION),
                    (subscriptions[:1], ResponseCode.SUCCESS),
                ):
                    consumer = ConsumerData(
                        group_name="mine_group",
                        consume_type=ConsumeType.CONSUME_PUSH,
                        message_model=MessageModel.CLUSTERING,
                        consume_from_where=FIRST,
                        subscription_data_set=subscribed,
                    )
                    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[consumer])
                    reply = await peer.ask(RequestCode.HEART_BEAT, {}, heartbeat.encode())
                    assert reply.code == code
                    assert one.snode.sessions.queues == (code == ResponseCode.SUCCESS)

    asyncio.run(main())


def test_messages_whose_permissions_only_brokers_know_are_not_pushed(tmp_path: Path) -> None:
    async def main() -> None:
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        async with (
            world(tmp_path, brokers=guarded) as one,
            SigningPeer(one.port, MINE) as producer,
            Peer(one.port) as stranger,
        ):
            await one.make_topic("mine", queues=1)
            wanted = SubscriptionData(
                topic="mine", message_queue_set={MessageQueue("mine", "broker-a", 0)}
            )
            consumer = ConsumerData(
                group_name="anybody",
                consume_type=ConsumeType.CONSUME_PUSH,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=FIRST,
                subscription_data_set=[wanted],
            )
            heartbeat = HeartbeatData(client_id="c", consumer_data_set=[consumer])
            await stranger.ask(RequestCode.HEART_BEAT, {}, heartbeat.encode())
            assert one.snode.sessions.queues == 1
            fields = {**send_fields("mine"), "n": "broker-a"}
            sent = await producer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"for few")
            assert sent.code == ResponseCode.SUCCESS
            assert one.snode.push.counts == {"signed": 1}

    asyncio.run(main())


def test_with_accounts_messages_are_still_pushed(tmp_path: Path) -> None:
    async def main() -> None:
        key = tmp_path / "key.yml"
        key.write_text("accessKey: administrator\nsecretKey: admin_secret\n")
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        signs = {**guarded, "enodeAclFile": str(key)}
        got: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            got.append(message.body)

        async with world(tmp_path, brokers=guarded, snode_is=signs) as one:
            await one.make_topic("mine", queues=1)
            namesrv = one.name_server.address
            mine = AccessKey(MINE[0], MINE[1].decode())
            async with (
                PushConsumer(
                    namesrv, "mine_group", {"mine": "*"}, listener=listen, credentials=mine,
                    consume_from=FIRST,
                ),
                Producer(namesrv, snode=True, credentials=mine) as producer,
            ):  # fmt: skip
                await sessions_of(one.snode, 1)
                for number in range(20):
                    await producer.send(Message("mine", b"%d" % number))
                await until(lambda: got == [b"%d" % number for number in range(20)])
                assert one.snode.push.counts["pushed"] == 20

    asyncio.run(main())
