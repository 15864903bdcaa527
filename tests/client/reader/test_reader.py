"""The queues that a member takes while some brokers are unavailable, with scripted brokers."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable
from math import inf

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.errors import MQError
from mq.client.offsets.offset_store import Offsets
from mq.client.pull.process_queue import ProcessQueue
from mq.client.reader import reader, revoked_queues
from mq.client.reader.queue_locks import QueueLocks
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import (
    BrokerData,
    GetConsumerListByGroupResponseBody,
    MessageQueue,
    QueueData,
    TopicConfig,
    TopicRouteData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.client.gate import gate
from tests.client.scripted import accept_heartbeats, scripted
from tests.client.tube.virtual_time import run_fast
from tests.interop.ports import free_port
from tests.waiting import until


class ScriptedBroker:
    """Knows one consumer, and one offset for every queue; suspends every pull."""

    def __init__(self, committed: int | None = 5) -> None:
        self.consumers: list[Consumer | LitePullConsumer] = []
        self.committed = committed
        self.pulled: dict[tuple[str, int], int] = {}
        self.asked: Counter[int] = Counter()

    def handlers(self) -> dict[int, Handler]:
        return {
            **{code: self._counted(handler) for code, handler in accept_heartbeats().items()},
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: lambda request, channel: request.reply(0),
            RequestCode.GET_MAX_OFFSET: lambda request, channel: request.reply(0, {"offset": "9"}),
            RequestCode.PULL_MESSAGE: self._pull,
        }

    def _counted(self, handler: Handler) -> Handler:
        def counted(request: Command, channel: Channel) -> object:
            self.asked[request.code] += 1
            return handler(request, channel)

        return counted  # type: ignore[return-value]

    def _members(self, request: Command, channel: Channel) -> Command:
        self.asked[request.code] += 1
        ids = [consumer.session.client_id for consumer in self.consumers]
        body = GetConsumerListByGroupResponseBody(consumer_id_list=ids)
        return request.reply(0, None, body.encode())

    def _offset(self, request: Command, channel: Channel) -> Command:
        if self.committed is None:
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark="none")
        return request.reply(0, {"offset": str(self.committed)})

    def _pull(self, request: Command, channel: Channel) -> None:
        fields = request.fields
        self.pulled[fields["topic"], int(fields["queueId"])] = int(fields["queueOffset"])


def routes_of(brokers: dict[str, dict[int, str]], queues: int = 2) -> dict[int, Handler]:
    """Return a name server's handlers: only TOPIC has a route, to these brokers by name and id."""

    def answer(request: Command, channel: Channel) -> Command:
        if request.fields["topic"] != TOPIC:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="not here")
        route = TopicRouteData(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
                for name in brokers
            ],
            broker_datas=[
                BrokerData(cluster="c", broker_name=name, broker_addrs=addresses)
                for name, addresses in brokers.items()
            ],
        )
        return request.reply(0, None, route.encode())

    return {RequestCode.GET_ROUTEINFO_BY_TOPIC: answer}


def nowhere() -> str:
    return f"127.0.0.1:{free_port()}"


async def nothing(message: StoredMessage) -> None:
    return None


def test_a_queue_whose_offset_is_unavailable_does_not_block_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    live = ScriptedBroker()

    async def scenario() -> None:
        async with scripted(live.handlers()) as there:
            places = {"a": {0: nowhere()}, "b": {0: there}, "c": {0: nowhere()}}
            async with scripted(routes_of(places)) as namesrv:
                consumer = Consumer(namesrv, GROUP, {TOPIC: "*"}, listener=nothing)
                live.consumers.append(consumer)
                async with consumer:
                    await until(lambda: len(live.pulled) == 2)
                    assert {queue.broker_name for queue in consumer.assigned} == {"b"}

    asyncio.run(scenario())
    assert live.pulled == {(TOPIC, 0): 5, (TOPIC, 1): 5}
    assert "MessageQueue(topic='topic', broker_name='a', queue_id=0)" in caplog.text


def test_a_queue_without_a_master_continues_at_the_offset_of_its_slave() -> None:
    live, replica = ScriptedBroker(), ScriptedBroker(committed=3)

    async def scenario() -> None:
        async with scripted(live.handlers()) as there, scripted(replica.handlers()) as second:
            for places in ({1: second}, {0: nowhere(), 1: second}):
                replica.pulled.clear()
                brokers = {"a": places, "b": {0: there}}
                async with scripted(routes_of(brokers)) as namesrv:
                    consumer = Consumer(namesrv, GROUP, {TOPIC: "*"}, listener=nothing)
                    live.consumers = replica.consumers = [consumer]
                    async with consumer:
                        await until(lambda c=consumer: len(c.assigned) == 4)  # type: ignore[misc]
                        places_held = {q: h.next_offset for q, h in consumer.reader.held.items()}
                        assert places_held == {
                            MessageQueue(TOPIC, name, number): offset
                            for name, offset in (("a", 3), ("b", 5))
                            for number in (0, 1)
                        }

    asyncio.run(scenario())


def test_a_slave_without_an_offset_does_not_make_a_group_start_at_the_end() -> None:
    live, replica = ScriptedBroker(), ScriptedBroker(committed=None)

    async def scenario() -> None:
        async with scripted(live.handlers()) as there, scripted(replica.handlers()) as second:
            brokers = {"a": {1: second}, "b": {0: there}}
            async with scripted(routes_of(brokers)) as namesrv:
                consumer = Consumer(namesrv, GROUP, {TOPIC: "*"}, listener=nothing)
                live.consumers = replica.consumers = [consumer]
                async with consumer:
                    await until(lambda: len(live.pulled) == 2)
                    assert not await consumer.reader.rebalance()
                    assert not replica.pulled

    asyncio.run(scenario())


def test_another_broker_is_queried_for_the_members_when_the_first_is_dead() -> None:
    live = ScriptedBroker()
    of_members = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    asked: Counter[int] = Counter()

    def no_answer(request: Command, channel: Channel) -> None:
        asked[request.code] += 1

    async def scenario() -> None:
        unanswered = dict.fromkeys(live.handlers(), no_answer)
        async with scripted(live.handlers()) as there, scripted(unanswered) as dead:
            brokers = {"a": {0: dead}, "b": {0: there}}
            async with scripted(routes_of(brokers)) as namesrv:
                consumer = Consumer(namesrv, GROUP, {TOPIC: "*"}, listener=nothing, timeout=2)
                live.consumers.append(consumer)
                async with consumer:
                    await until(lambda: len(live.pulled) == 2)
                    route = await consumer.session.route(TOPIC)
                    before = asked[of_members]
                    members = await consumer.reader._assignments.members.ask(route)
                    assert (members.address, asked[of_members]) == (there, before)
                    assert before > 0  # the dead broker was queried first

    run_fast(scenario())


def test_a_dead_broker_causes_no_additional_heartbeats_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.pull.pulling.RECONNECT_SECONDS", 0.02)
    live = ScriptedBroker()

    async def scenario() -> None:
        async with scripted(live.handlers()) as there:
            places = {"a": {0: nowhere(), 1: there}, "b": {0: there}}
            async with scripted(routes_of(places, queues=16)) as namesrv:
                consumer = Consumer(namesrv, GROUP, {TOPIC: "*"}, listener=nothing)
                live.consumers.append(consumer)
                async with consumer:
                    await until(lambda: len(consumer.assigned) == 32)
                    before = live.asked[RequestCode.HEART_BEAT]
                    await asyncio.sleep(0.5)  # no event shows that nothing happens
                    assert live.asked[RequestCode.HEART_BEAT] - before <= 1

    asyncio.run(scenario())


def test_failing_pulls_are_logged_once_per_broker_and_state_and_once_at_their_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mq.client.pull.pulling.PULL_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("mq.client.pull.pulling.RECONNECT_SECONDS", 0.01)
    broken = ScriptedBroker()
    answers: Counter[int] = Counter()
    state: ResponseCode = ResponseCode.SYSTEM_ERROR

    def pull(request: Command, channel: Channel) -> Command:
        answers[state] += 1
        place = {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5"}
        place["suggestWhichBrokerId"] = "0"
        if state == ResponseCode.SYSTEM_ERROR and request.fields["queueId"] == "0":
            # not all queues of the broker fail
            return request.reply(ResponseCode.PULL_NOT_FOUND, place)
        return request.reply(state, place, remark="the disk is away")

    async def scenario() -> None:
        nonlocal state
        handlers: dict[int, Handler] = {**broken.handlers(), RequestCode.PULL_MESSAGE: pull}
        async with (
            scripted(handlers) as there,
            scripted(routes_of({"a": {0: there}}, queues=8)) as namesrv,
        ):
            consumer = Consumer(namesrv, GROUP, {TOPIC: "*"}, listener=nothing)
            broken.consumers.append(consumer)
            async with consumer:
                await until(lambda: answers[ResponseCode.SYSTEM_ERROR] >= 80)
                state = ResponseCode.NO_PERMISSION
                await until(lambda: answers[ResponseCode.NO_PERMISSION] >= 80)
                state = ResponseCode.PULL_NOT_FOUND
                await until(lambda: "succeed again" in caplog.text)

    with caplog.at_level("INFO"):
        asyncio.run(scenario())
    messages = [r.getMessage() for r in caplog.records if r.name.startswith("mq.client.pull")]
    assert [line.partition(":")[0] for line in messages] == [
        "group group, broker a",
        "group group, broker a",
        "group group, broker a",
    ]
    assert "pulls fail" in messages[0] and "the disk is away" in messages[0]
    assert "pulls fail" in messages[1]
    assert "pulls succeed again" in messages[2]


def test_queues_are_revoked_concurrently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revoked_queues, "HAND_OVER_SECONDS", 3600.0)
    inside: set[int] = set()

    async def scenario() -> None:
        release = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            inside.add(message.queue_id)
            await release.wait()

        async with cluster(queues=4) as there:
            for number in range(4):
                queue = MessageQueue(TOPIC, "broker-a", number)
                await there.producer.send(Message(TOPIC, b"x"), queue)
            async with there.consumer(listener=listen, ordered=True) as consumer:
                await until(lambda: len(inside) == 4)
                giving_up = asyncio.create_task(consumer.reader.assign([]))
                await until(lambda: len(consumer.reader._revoked.busy) == 4)
                assert not giving_up.done()
                release.set()
                await giving_up

    asyncio.run(scenario())


def test_a_reset_queue_that_cannot_be_taken_is_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "REBALANCE_AGAIN_SECONDS", 0.05)

    async def scenario() -> None:
        async with cluster(queues=1) as there, gate(there.pair.broker.address) as way:
            name = there.pair.broker.settings.broker.broker_name
            async with scripted(routes_of({name: {0: way.address}}, 1)) as namesrv:
                queue = MessageQueue(TOPIC, name, 0)
                await there.send(*numbers(4))
                lite = LitePullConsumer(namesrv, GROUP, consume_from=FIRST, timeout=0.3)
                async with lite:
                    await lite.assign([queue])
                    assert await lite.poll(5)
                    way.blocked = True
                    await lite.reader.reset({queue: 2})
                    assert lite.assigned == []
                    way.blocked = False
                    await until(lambda: lite.assigned == [queue])

    run_fast(scenario())


def test_a_strategy_that_raises_stops_neither_consumer_nor_its_later_rebalances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "REBALANCE_AGAIN_SECONDS", 0.02)
    calls: list[int] = []

    def strategy(client_id: str, queues: object, members: object) -> list[MessageQueue]:
        calls.append(1)
        if len(calls) < 3:
            raise (KeyError("a bug of the user's"), asyncio.CancelledError())[len(calls) - 1]
        return list(queues)  # type: ignore[call-overload, no-any-return]

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            async with there.consumer(listener=nothing, strategy=strategy) as consumer:
                await until(lambda: len(consumer.assigned) == 2)

    asyncio.run(scenario())


@pytest.mark.parametrize("ordered", [False, True])
def test_a_recreated_topic_is_read_although_old_messages_are_unfinished(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.pull.pulling.PULL_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.pull.pulling.LONG_POLL_SECONDS", 0.2)
    monkeypatch.setattr(revoked_queues, "HAND_OVER_SECONDS", 0.1)
    monkeypatch.setattr(reader, "REBALANCE_AGAIN_SECONDS", 0.05)
    got: list[bytes] = []

    async def scenario() -> None:
        release = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            if message.body == b"held":
                await release.wait()
            got.append(message.body)

        async with cluster(queues=1) as there:
            await there.send(*numbers(3), b"held")
            queue = MessageQueue(TOPIC, "broker-a", 0)
            broker = there.pair.broker.address
            async with there.consumer(listener=listen, ordered=ordered) as consumer:
                await until(lambda: len(got) == 3)
                former = consumer.reader.held[queue]
                await there.admin.delete_topic_in_broker(broker, TOPIC)
                config = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)
                await there.admin.create_topic(broker, config)
                await until(lambda: former.dropped)
                release.set()
                await until(lambda: queue in consumer.reader.held)
                await there.send(b"new")
                await until(lambda: got[-1] == b"new")
                await until(lambda: consumer.reader.held[queue].commit_offset == 1)

    asyncio.run(scenario())


def test_a_listener_that_stays_in_a_lost_queue_causes_no_repeated_rebalances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "LOCK_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(reader, "REBALANCE_AGAIN_SECONDS", 600.0)
    monkeypatch.setattr(reader, "LONGEST_AGAIN_SECONDS", 600.0)
    renewals = rebalances = 0
    renew = QueueLocks.renew

    async def counted(
        self: QueueLocks, held: Iterable[ProcessQueue], offsets: Offsets
    ) -> list[ProcessQueue]:
        nonlocal renewals
        renewals += 1
        return await renew(self, held, offsets)

    def strategy(
        client_id: str, queues: list[MessageQueue], clients: list[str]
    ) -> list[MessageQueue]:
        nonlocal rebalances
        rebalances += queues[0].topic == TOPIC
        return queues

    monkeypatch.setattr(QueueLocks, "renew", counted)
    inside, may_end = threading.Event(), threading.Event()

    def listen(message: StoredMessage) -> None:
        inside.set()
        may_end.wait()

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            queue = MessageQueue(TOPIC, "broker-a", 0)
            await there.send(b"x")
            async with there.consumer(listener=listen, ordered=True, strategy=strategy) as consumer:
                await asyncio.to_thread(inside.wait)
                held = consumer.reader.held[queue]
                locks = there.pair.broker.clients.locks
                locks.unlock(GROUP, consumer.session.client_id, [queue])
                assert locks.lock(GROUP, "another", [queue]) == {queue}
                held.locked_at = -inf  # as when it was not renewed for too long
                await until(lambda: held.dropped)
                before, seen = rebalances, renewals
                await until(lambda: renewals > seen + 10)
                may_end.set()
                assert rebalances <= before + 1

    asyncio.run(scenario())


def test_a_queue_that_is_locked_while_its_consumer_closes_is_unlocked_again() -> None:
    asked, released = asyncio.Event(), asyncio.Event()

    class Slow:
        """A user's own store that does not answer."""

        async def committed(self, queue: MessageQueue) -> int | None:
            asked.set()
            await released.wait()
            return 0

        def update(self, queue: MessageQueue, offset: int) -> None: ...

        def forget(self, queue: MessageQueue) -> None: ...

        async def commit(
            self, queues: Iterable[MessageQueue], *, again: bool = False
        ) -> list[MQError]:
            return []

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            consumer = there.consumer(listener=nothing, ordered=True, offsets=Slow())
            await consumer.open()
            await asked.wait()
            locks = there.pair.broker.clients.locks
            await consumer.close()
            queue = MessageQueue(TOPIC, "broker-a", 0)
            assert locks.lock(GROUP, "another", [queue]) == {queue}

    asyncio.run(scenario())
