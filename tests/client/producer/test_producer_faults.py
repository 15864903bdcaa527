"""A producer that avoids a broker that fails, with scripted brokers."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mq.client.errors import ConnectError, RemoteSystemError, RequestTimeout
from mq.client.producer.producer import Producer
from mq.client.producer.routing_table import SENDS
from mq.client.routing.latency import FaultTolerance
from mq.daemons.broker.replication.in_sync_gate import not_enough
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.client.scripted import (
    accept_heartbeats,
    closed_port,
    name_server,
    refuses,
    routes,
    scripted,
    stores,
)
from tests.client.tube.virtual_time import run_fast
from tests.waiting import until


def ask(faults: FaultTolerance | None) -> Counter[str]:
    """Send 20 messages; returns how often each broker was tried. Broker "bad" refuses all."""
    asked: Counter[str] = Counter()

    async def scenario() -> None:
        async with (
            scripted(stores("good", asked)) as good,
            scripted(refuses("bad", asked)) as bad,
            scripted(name_server({"good": good, "bad": bad})) as namesrv,
            Producer(namesrv, "senders", faults=faults) as producer,
        ):
            for number in range(20):
                result = await producer.send(Message("topic", b"%d" % number))
                assert result.queue.broker_name == "good"

    run_fast(scenario())  # a pause of the machine must not make a broker seem slow
    return asked


def test_a_failing_broker_is_retried_without_fault_tolerance() -> None:
    asked = ask(None)
    assert asked["good"] == 20
    assert asked["bad"] > 2


def test_a_failed_broker_is_avoided_for_a_while() -> None:
    assert ask(FaultTolerance()) == {"good": 20, "bad": 1}


def never_answers(name: str, asked: Counter[str]) -> dict[int, Handler]:
    """Return the handlers of a broker that answers heartbeats, but no send."""

    def ignore(request: Command, channel: Channel) -> None:
        asked[name] += 1

    return {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: ignore}


def send_with_hanging_brokers(*names: str, hanging: int = 1, **options: Any) -> Counter[str]:
    """Send 60 messages one after the other; returns how often each broker was tried."""
    asked: Counter[str] = Counter()

    async def scenario() -> None:
        async with AsyncExitStack() as parts:
            brokers = {}
            for number, name in enumerate(names):
                script = never_answers if number < hanging else stores
                brokers[name] = await parts.enter_async_context(scripted(script(name, asked)))
            namesrv = await parts.enter_async_context(scripted(name_server(brokers)))
            producer = await parts.enter_async_context(Producer(namesrv, "senders", **options))
            for number in range(60):
                await producer.send(Message("topic", b"%d" % number))

    run_fast(scenario())
    return asked


@pytest.mark.parametrize("names", [("hangs", "a"), ("hangs", "a", "b")])
def test_no_send_fails_while_one_broker_does_not_answer(names: tuple[str, ...]) -> None:
    asked = send_with_hanging_brokers(*names)
    assert asked.total() - asked["hangs"] == 60
    assert asked["hangs"] < 4


def test_no_send_fails_without_fault_tolerance_while_one_broker_does_not_answer() -> None:
    asked = send_with_hanging_brokers("hangs", "a", "b", faults=None)
    assert asked.total() - asked["hangs"] == 60
    assert asked["hangs"] > 10


def test_no_send_fails_while_two_of_three_brokers_do_not_answer() -> None:
    asked = send_with_hanging_brokers("one", "two", "a", hanging=2)
    assert asked["a"] == 60


def test_a_send_takes_the_answer_of_a_slow_broker_if_the_others_fail() -> None:
    """Both attempts of one send are in flight; the first result counts, not an earlier error."""
    asked: Counter[str] = Counter()
    other_was_asked = asyncio.Event()

    async def slow(request: Command, channel: Channel) -> Command:
        await other_was_asked.wait()
        answer = stores("slow", asked)[RequestCode.SEND_MESSAGE_V2](request, channel)
        assert isinstance(answer, Command)
        return answer

    def refuse(request: Command, channel: Channel) -> Command:
        other_was_asked.set()
        return refuses("bad", asked)[RequestCode.SEND_MESSAGE_V2](request, channel)  # type: ignore[return-value]

    async def scenario() -> None:
        async with (
            scripted({**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: slow}) as first,
            scripted({**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: refuse}) as bad,
            scripted(name_server({"slow": first, "bad": bad})) as namesrv,
            Producer(namesrv, "senders") as producer,
        ):
            result = await producer.send(Message("topic", b"one"))
            assert result.queue.broker_name == "slow"

    run_fast(scenario())
    assert asked["slow"] == 1


def test_a_cancelled_send_leaves_no_pending_request() -> None:
    asked: Counter[str] = Counter()

    async def scenario() -> None:
        async with (
            scripted(never_answers("one", asked)) as one,
            scripted(never_answers("two", asked)) as two,
            scripted(name_server({"one": one, "two": two})) as namesrv,
            Producer(namesrv, "senders") as producer,
        ):
            sending = asyncio.create_task(producer.send(Message("topic", b"one")))
            await until(lambda: len(asked) == 2)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()
            peers = producer.session._peers.values()
            open_ones = [p for peer in peers for p in peer._pending.values() if not p.future.done()]
            assert not [pending for pending in open_ones if pending.code in SENDS]

    asyncio.run(scenario())


def test_submitted_messages_avoid_a_silent_broker_until_it_answers() -> None:
    asked: Counter[str] = Counter()
    hangs = True

    def answer(request: Command, channel: Channel) -> Command | None:
        if hangs:
            return None
        return stores("hangs", asked)[RequestCode.SEND_MESSAGE_V2](request, channel)  # type: ignore[return-value]

    async def scenario() -> None:
        nonlocal hangs
        async with (
            scripted({**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: answer}) as bad,
            scripted(stores("good", asked)) as good,
            scripted(name_server({"hangs": bad, "good": good})) as namesrv,
            Producer(namesrv, "senders") as producer,
        ):
            await producer.prepare("topic")
            message = Message("topic", b"one")
            tried = [producer.submit(message) for _ in range(4)]
            results = await asyncio.gather(*tried, return_exceptions=True)
            assert sum(isinstance(result, RequestTimeout) for result in results) == 2
            await asyncio.gather(*[producer.submit(message) for _ in range(20)])
            hangs = False
            while not asked["hangs"]:  # until it is probed again
                await asyncio.sleep(1)
                await producer.submit(message)
            asked.clear()
            await asyncio.gather(*[producer.submit(message) for _ in range(20)])

    run_fast(scenario())
    assert asked["hangs"] == asked["good"] == 10


def elected_after(queries: int, dead: str, new: str) -> Handler:
    """Return a name server's handler: the master is dead, then missing, and then a new one.

    The first two states last for `queries` queries each.
    """
    asked = 0

    def answer(request: Command, channel: Channel) -> Command:
        nonlocal asked
        asked += 1
        reply = routes({"set": dead if asked <= queries else new})(request, channel)
        assert isinstance(reply, Command)
        if queries < asked <= 2 * queries:
            route = TopicRouteData.decode(reply.body)
            route.broker_datas[0].broker_addrs = {1: new}
            return request.reply(0, None, route.encode())
        return reply

    return answer


def test_a_send_continues_at_the_new_master_when_a_route_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.producer.sender.ROUTE_PATIENCE", 3600.0)
    asked: Counter[str] = Counter()

    async def scenario() -> None:
        async with AsyncExitStack() as parts:
            new = await parts.enter_async_context(scripted(stores("new", asked)))
            answer = elected_after(3, closed_port(), new)
            names: dict[int, Handler] = {RequestCode.GET_ROUTEINFO_BY_TOPIC: answer}
            namesrv = await parts.enter_async_context(scripted(names))
            producer = await parts.enter_async_context(Producer(namesrv, "senders"))
            await producer.send(Message("topic", b"one"))

    asyncio.run(scenario())
    assert asked == {"new": 1}


def test_a_send_to_an_unreachable_only_broker_fails_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.producer.sender.ROUTE_PATIENCE", 0.05)

    async def scenario() -> None:
        async with (
            scripted(name_server({"set": closed_port()})) as namesrv,
            Producer(namesrv, "senders") as producer,
        ):
            with pytest.raises(ConnectError):
                await producer.send(Message("topic", b"one"))

    asyncio.run(scenario())


def test_a_send_that_is_refused_for_good_does_not_wait_for_another_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.producer.sender.ROUTE_PATIENCE", 3600.0)
    sends = 0

    def refuse(request: Command, channel: Channel) -> Command:
        nonlocal sends
        sends += 1
        return request.reply(ResponseCode.SYSTEM_ERROR, remark="request queueId[9] is illegal")

    async def scenario() -> None:
        broker = {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: refuse}
        async with (
            scripted(broker) as address,
            scripted(name_server({"set": address})) as namesrv,
            Producer(namesrv, "senders", timeout=60) as producer,
        ):
            with pytest.raises(RemoteSystemError):
                await producer.send(Message("topic", b"one"))

    asyncio.run(scenario())
    assert sends == 3


def test_a_send_to_a_master_that_lacks_slaves_continues_at_the_next_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.producer.sender.ROUTE_PATIENCE", 3600.0)
    asked: Counter[str] = Counter()

    def refuse(request: Command, channel: Channel) -> Command:
        refusal = not_enough()
        return request.reply(refusal.code, remark=refusal.remark)

    async def scenario() -> None:
        async with AsyncExitStack() as parts:
            alone = {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: refuse}
            old = await parts.enter_async_context(scripted(alone))
            new = await parts.enter_async_context(scripted(stores("new", asked)))
            answer = elected_after(3, old, new)
            names: dict[int, Handler] = {RequestCode.GET_ROUTEINFO_BY_TOPIC: answer}
            namesrv = await parts.enter_async_context(scripted(names))
            producer = await parts.enter_async_context(Producer(namesrv, "senders"))
            await producer.send(Message("topic", b"one"))

    asyncio.run(scenario())
    assert asked == {"new": 1}


def moves_at(queries: int, dead: str, new: str, asked: Counter[str]) -> Handler:
    """Return a name server's handler: all topics are at a dead master for `queries` queries."""

    def answer(request: Command, channel: Channel) -> Command:
        asked["routes"] += 1
        reply = routes({"set": dead if asked["routes"] <= queries else new})(request, channel)
        assert isinstance(reply, Command)
        return reply

    return answer


@pytest.mark.parametrize("comes", [False, True])
def test_sends_of_many_topics_share_the_queries_for_a_new_master(
    comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each topic would query 20 times a second while the set is unavailable."""
    if comes:
        monkeypatch.setattr("mq.client.producer.sender.ROUTE_PATIENCE", 3600.0)
    asked: Counter[str] = Counter()
    topics = 40

    async def scenario() -> None:
        async with AsyncExitStack() as parts:
            new = await parts.enter_async_context(scripted(stores("new", asked)))
            queries = topics + 20 if comes else 1 << 30
            answer = moves_at(queries, closed_port(), new, asked)
            names: dict[int, Handler] = {RequestCode.GET_ROUTEINFO_BY_TOPIC: answer}
            namesrv = await parts.enter_async_context(scripted(names))
            producer = await parts.enter_async_context(Producer(namesrv, "senders"))
            messages = [Message(f"topic-{number}", b"one") for number in range(topics)]
            results = await asyncio.gather(*map(producer.send, messages), return_exceptions=True)
            if not comes:
                assert {type(result) for result in results} == {ConnectError}

    asyncio.run(scenario())
    assert asked["new"] == (topics if comes else 0)
    assert asked["routes"] < 8 * topics
