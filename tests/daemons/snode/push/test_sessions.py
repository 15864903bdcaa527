"""Push sessions: which channels get the messages of a queue, and for how long."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.snode.push import sessions as push_sessions
from mq.daemons.snode.push.sessions import ANY_BROKER, PushSessions, Run, queues_to_push
from mq.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageQueue,
    SubscriptionData,
)
from tests.daemons.peer import Peer

A0, A1, B0 = (MessageQueue("T", *place) for place in (("a", 0), ("a", 1), ("b", 0)))

Scenario = Callable[[PushSessions, list[Channel], list[Peer]], Awaitable[None]]


def connected(count: int, scenario: Scenario) -> None:
    """Run it with so many channels, each with its peer."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            listener = await stack.enter_async_context(Listener(Dispatcher({}), "127.0.0.1", 0))
            peers = []
            for _ in range(count):
                peers.append(await stack.enter_async_context(Peer(listener.port)))
                await peers[-1].ask(1)  # it is accepted
            await scenario(PushSessions(), list(listener.channels), peers)

    asyncio.run(main())


def who(sessions: PushSessions, queue: MessageQueue) -> set[tuple[str, str]]:
    found = {(one.client_id, one.group) for one in sessions.of(queue)}
    assert sessions.wants(queue) == bool(found)
    return found


def test_the_next_heartbeat_replaces_the_queues_also_by_none() -> None:
    async def scenario(sessions: PushSessions, channels: list[Channel], peers: list[Peer]) -> None:
        (channel,) = channels
        sessions.replace(channel, "c", "g", [A0, A1])
        assert who(sessions, A0) == who(sessions, A1) == {("c", "g")}
        sessions.replace(channel, "c", "g", [A1, B0])
        assert who(sessions, A0) == set()
        assert who(sessions, A1) == who(sessions, B0) == {("c", "g")}
        sessions.replace(channel, "c", "g", [])
        assert (len(sessions), sessions.queues) == (0, 0)

    connected(1, scenario)


def test_groups_and_channels_have_sessions_of_their_own() -> None:
    async def scenario(sessions: PushSessions, channels: list[Channel], peers: list[Peer]) -> None:
        one, other = channels
        sessions.replace(one, "c", "g", [A0])
        sessions.replace(one, "c", "h", [A0, B0])
        sessions.replace(other, "d", "g", [A0])
        assert who(sessions, A0) == {("c", "g"), ("c", "h"), ("d", "g")}
        sessions.remove(one, "h")
        sessions.remove(one, "nobody")
        assert who(sessions, A0) == {("c", "g"), ("d", "g")}
        assert who(sessions, B0) == set()

    connected(2, scenario)


def test_a_closed_channel_has_no_sessions_and_gets_none() -> None:
    async def scenario(sessions: PushSessions, channels: list[Channel], peers: list[Peer]) -> None:
        one, other = channels
        for channel in channels:
            sessions.replace(channel, "c", "g", [A0])
            sessions.replace(channel, "c", "h", [B0])
        closed = asyncio.Event()
        one.on_close.append(lambda _: closed.set())
        await peers[0].close()
        async with asyncio.timeout(30):
            await closed.wait()
        assert [s.channel for s in sessions.of(A0)] == [other]
        sessions.replace(one, "c", "g", [A0, A1])  # a heartbeat that was served late
        assert [s.channel for s in sessions.of(A0)] == [other]
        assert len(sessions) == 2

    connected(2, scenario)


def test_queues_named_by_numbers_are_those_of_every_broker() -> None:
    async def scenario(sessions: PushSessions, channels: list[Channel], peers: list[Peer]) -> None:
        (channel,) = channels
        sessions.replace(channel, "c", "seed", [MessageQueue("T", ANY_BROKER, 0)])
        sessions.replace(channel, "c", "head", [A0])
        assert who(sessions, A0) == {("c", "seed"), ("c", "head")}
        assert who(sessions, B0) == {("c", "seed")}
        assert who(sessions, A1) == set()
        sessions.remove(channel, "seed")
        assert who(sessions, B0) == set()

    connected(1, scenario)


def named(consume_type: ConsumeType, *subscriptions: SubscriptionData) -> set[MessageQueue]:
    consumer = ConsumerData(
        group_name="g", consume_type=consume_type, subscription_data_set=list(subscriptions)
    )
    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[consumer])
    (read,) = HeartbeatData.decode(heartbeat.encode()).consumer_data_set
    return queues_to_push(read)


def test_heartbeats_name_queues_in_either_form() -> None:
    head = SubscriptionData(topic="T", message_queue_set={A0, MessageQueue("other", "a", 0)})
    seed = SubscriptionData(topic="U", queue_id_set={0, 2})
    both = SubscriptionData(topic="T", message_queue_set=set(), queue_id_set={1})
    push = ConsumeType.CONSUME_PUSH
    assert named(push, head, seed) == {
        A0,  # a queue of a topic without a subscription does not count
        MessageQueue("U", ANY_BROKER, 0),
        MessageQueue("U", ANY_BROKER, 2),
    }
    assert named(push, both) == set()
    assert named(push, SubscriptionData(topic="T")) == set()


@pytest.mark.parametrize(
    "consume_type", [ConsumeType.CONSUME_PASSIVELY, ConsumeType.CONSUME_ACTIVELY]
)
def test_a_pull_consumer_gets_no_push_whatever_queues_it_names(consume_type: ConsumeType) -> None:
    assert named(consume_type, SubscriptionData(topic="T", message_queue_set={A0})) == set()


def test_a_heartbeat_keeps_the_position_in_remaining_queues() -> None:
    async def scenario(sessions: PushSessions, channels: list[Channel], peers: list[Peer]) -> None:
        (channel,) = channels
        sessions.replace(channel, "c", "g", [A0, A1])
        (session,) = sessions.of(A0)
        kept = Run(7, 7, True)
        session.runs |= {A0: Run(5, 6, True), A1: kept}
        sessions.replace(channel, "c", "g", [A1, B0])
        assert session.runs == {A1: kept}
        sessions.replace(channel, "c", "g", [A0, A1])
        assert session.runs == {A1: kept}

    connected(1, scenario)


def test_the_queues_of_a_channel_are_limited_and_counted_as_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push_sessions, "MOST_QUEUES", 100)

    async def scenario(sessions: PushSessions, channels: list[Channel], peers: list[Peer]) -> None:
        (channel,) = channels
        before = channel.memory
        sessions.replace(channel, "c", "g", [MessageQueue("T", "a", n) for n in range(1000)])
        assert sessions.queues == 100
        assert channel.memory - before == 100 * push_sessions.QUEUE_COST
        sessions.replace(channel, "c", "g", [A0])
        assert channel.memory - before == push_sessions.QUEUE_COST
        sessions.remove(channel, "g")
        assert channel.memory == before

    connected(1, scenario)
