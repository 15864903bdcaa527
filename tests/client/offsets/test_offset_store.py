import asyncio
from collections.abc import Callable, Coroutine

import pytest

from mq.client.errors import RequestTimeout, SystemBusy
from mq.client.machine import clock
from mq.client.offsets.offset_store import OffsetStore
from mq.client.pull import missing_topics
from mq.client.pull.missing_topics import MissingTopics
from mq.client.pull.process_queue import ProcessQueue
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from tests.client.clusters import GROUP, TOPIC, cluster, numbers
from tests.client.scripted import name_server, scripted
from tests.waiting import until

QUEUES = [
    MessageQueue(topic, broker, number)
    for topic in ("one", "two")
    for broker in ("a", "b")
    for number in range(4)
]


class ForgetfulBroker:
    """Stores offsets as Java does: of concurrent first commits, only the table of the last one
    stays.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, str]] = {}
        self.in_flight = 0
        self.most_in_flight = 0

    async def update(self, request: Command, channel: Channel) -> Command:
        fields = request.fields
        key = f"{fields['topic']}@{fields['consumerGroup']}"
        table = self.tables.get(key)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)  # the other requests find no table either
        await asyncio.sleep(0)
        if table is None:
            table = self.tables[key] = {}
        table[fields["queueId"]] = fields["commitOffset"]
        self.in_flight -= 1
        return request.reply(ResponseCode.SUCCESS)


@pytest.mark.parametrize("together", [True, False])
def test_no_first_offset_is_lost_at_a_broker_that_keeps_one_of_concurrent_ones(
    together: bool,
) -> None:
    brokers = {"a": ForgetfulBroker(), "b": ForgetfulBroker()}

    async def scenario() -> None:
        update = RequestCode.UPDATE_CONSUMER_OFFSET
        async with (
            scripted({update: brokers["a"].update}) as a,
            scripted({update: brokers["b"].update}) as b,
            scripted(name_server({"a": a, "b": b})) as namesrv,
            Session(namesrv) as session,
        ):
            offsets = OffsetStore(session, "g")
            for queue in QUEUES:
                offsets.update(queue, 7)
            if together:
                assert await offsets.commit(QUEUES) == []
            else:  # as when queues are revoked
                commits = [offsets.commit([queue]) for queue in QUEUES]
                assert await asyncio.gather(*commits) == [[]] * len(QUEUES)

    asyncio.run(scenario())
    expected = {str(number): "7" for number in range(4)}
    for broker in brokers.values():
        assert broker.tables == {"one@g": expected, "two@g": expected}
        assert broker.most_in_flight > 1


@pytest.mark.parametrize("given_up", [False, True])
def test_the_first_offset_of_a_recreated_topic_is_sent_before_the_others(
    given_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java broker (5.x) that removes a topic's offsets keeps only one of concurrent first
    offsets.
    """
    monkeypatch.setattr(missing_topics, "FIRST_PAUSE_SECONDS", 0.001)
    broker, queues = ForgetfulBroker(), [MessageQueue("one", "a", number) for number in range(4)]

    async def scenario() -> None:
        async with (
            scripted({RequestCode.UPDATE_CONSUMER_OFFSET: broker.update}) as a,
            scripted(name_server({"a": a})) as namesrv,
            Session(namesrv) as session,
        ):
            offsets = OffsetStore(session, "g")
            missing = MissingTopics(session, "g", offsets)
            for offset in (7, 0):
                for queue in queues:
                    offsets.update(queue, offset)
                commits = [offsets.commit([queue]) for queue in queues]
                assert await asyncio.gather(*commits) == [[]] * 4
                broker.tables, before = {}, broker.tables
                for queue in queues:
                    if given_up:  # as a member that closes and is opened again
                        offsets.forget(queue)
                    else:
                        await missing.wait(ProcessQueue(queue, offset), clock.monotonic())
            assert before == {"one@g": {str(number): "0" for number in range(4)}}

    asyncio.run(scenario())


def test_a_reset_during_a_commit_is_not_overwritten() -> None:
    table: dict[str, str] = {}
    answered, may_answer = asyncio.Event(), asyncio.Event()

    async def late(request: Command, channel: Channel) -> Command:
        await may_answer.wait()
        return request.reply(ResponseCode.SUCCESS)

    def update(request: Command, channel: Channel) -> Command:
        table[request.fields["queueId"]] = request.fields["commitOffset"]
        answered.set()
        return request.reply(ResponseCode.SUCCESS)

    reset, given_up, *_ = there = [MessageQueue("one", "b", number) for number in range(3)]

    async def scenario() -> None:
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        async with (
            scripted({code: late}) as a,
            scripted({code: update}) as b,
            scripted(name_server({"a": a, "b": b})) as namesrv,
            Session(namesrv) as session,
        ):
            offsets = OffsetStore(session, "g")
            queues = [MessageQueue("one", "a", 0), *there]
            for queue in queues:
                offsets.update(queue, 7)
            commit = asyncio.create_task(offsets.commit(queues))
            await answered.wait()
            for queue, offset in ((reset, 3), (given_up, 9)):
                offsets.update(queue, offset)
                assert await offsets.commit([queue], again=True) == []
                offsets.forget(queue)
            may_answer.set()
            assert await commit == []

    asyncio.run(scenario())
    assert table == {"0": "3", "1": "9", "2": "7"}


def test_an_explicit_commit_is_sent_although_nothing_has_changed() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(3))
            done = asyncio.Event()

            async def listen(message: StoredMessage) -> None:
                if message.body == b"2":
                    done.set()

            async with there.consumer(listener=listen, concurrency=1) as consumer:
                await done.wait()
                await until(lambda: not any(h.count for h in consumer.reader.held.values()))
                await consumer.commit()
                assert await there.lag() == 0
                broker = there.pair.broker.address
                await there.admin.update_consumer_offset(broker, GROUP, TOPIC, 0, 1)
                assert await there.lag() == 2
                await consumer.commit()
                assert await there.lag() == 0

    asyncio.run(scenario())


def test_committed_offsets_are_repeated_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.client.offsets.offset_store.REPEAT_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.reader.commits.COMMIT_SECONDS", 0.05)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"1")
            broker = there.pair.broker.address
            async with there.consumer(listener=lambda message: None) as consumer:
                await until(lambda: consumer.reader.counts[TOPIC].consumed == 1)
                await consumer.commit()
                await there.admin.update_consumer_offset(broker, GROUP, TOPIC, 0, 0)
                async with asyncio.timeout(60):
                    while await there.lag():  # noqa: ASYNC110
                        await asyncio.sleep(0.02)

    asyncio.run(scenario())


def at_one_broker(
    update: Handler, scenario: Callable[[OffsetStore], Coroutine[None, None, None]]
) -> None:
    """Run `scenario` with the store of a group whose only broker, "b", handles commits with
    `update`.
    """

    async def main() -> None:
        async with (
            scripted({RequestCode.UPDATE_CONSUMER_OFFSET: update}) as b,
            scripted(name_server({"b": b})) as namesrv,
            Session(namesrv) as session,
        ):
            await scenario(OffsetStore(session, "g"))

    asyncio.run(main())


EIGHT = [MessageQueue("one", "b", number) for number in range(8)]


@pytest.mark.parametrize("together", [True, False])
def test_a_refused_first_offset_does_not_affect_the_others(together: bool) -> None:
    broker = ForgetfulBroker()
    asked: list[str] = []

    async def update(request: Command, channel: Channel) -> Command:
        asked.append(request.fields["queueId"])
        if len(asked) == 1:
            return request.reply(ResponseCode.SYSTEM_BUSY, remark="just now")
        return await broker.update(request, channel)

    async def scenario(offsets: OffsetStore) -> None:
        for queue in EIGHT:
            offsets.update(queue, 7)
        if together:
            errors = await offsets.commit(EIGHT)
        else:  # as when queues are revoked
            found = await asyncio.gather(*[offsets.commit([queue]) for queue in EIGHT])
            errors = [error for some in found for error in some]
        assert [type(error) for error in errors] == [SystemBusy]

    at_one_broker(update, scenario)
    (table,) = broker.tables.values()
    assert sorted(table) == [str(queue.queue_id) for queue in EIGHT[1:]]


def test_an_offset_is_committed_after_an_earlier_one_has_timed_out() -> None:
    table: dict[str, str] = {}
    asked = asyncio.Event()

    def update(request: Command, channel: Channel) -> Command | None:
        if not asked.is_set():
            asked.set()
            return None
        table[request.fields["queueId"]] = request.fields["commitOffset"]
        return request.reply(ResponseCode.SUCCESS)

    async def scenario(offsets: OffsetStore) -> None:
        offsets._session.timeout = 1.0
        first, *others = EIGHT
        offsets.update(first, 7)
        early = asyncio.create_task(offsets.commit([first]))
        await asked.wait()
        await asyncio.sleep(0.3)  # a part of the timeout of one second
        for queue in others:
            offsets.update(queue, 8)
        late = await asyncio.gather(*[offsets.commit([queue]) for queue in others])
        assert late == [[]] * len(others)
        assert [type(error) for error in await early] == [RequestTimeout]

    at_one_broker(update, scenario)
    assert table == {str(queue.queue_id): "8" for queue in EIGHT[1:]}


def test_a_silent_broker_is_waited_for_once_for_all_queues() -> None:
    asked: list[str] = []

    def update(request: Command, channel: Channel) -> None:
        asked.append(request.fields["queueId"])

    async def scenario(offsets: OffsetStore) -> None:
        offsets._session.timeout = 0.5
        for queue in EIGHT:
            offsets.update(queue, 7)
        errors = await offsets.commit(EIGHT)
        assert {type(error) for error in errors} == {RequestTimeout}
        assert len(errors) == len(EIGHT)

    at_one_broker(update, scenario)
    assert asked == ["0"]


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_reports_a_queue_that_was_revoked_before_its_offset_was_committed(
    is_committed: bool,
) -> None:
    first, gone, *_ = EIGHT
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def update(request: Command, channel: Channel) -> Command:
        if request.fields["queueId"] == "0":
            asked.set()
            await may_answer.wait()
        return request.reply(ResponseCode.SUCCESS)

    async def scenario(offsets: OffsetStore) -> None:
        for queue in (first, gone):
            offsets.update(queue, 7)
        if is_committed:
            offsets._begun.add(("one", "b"))
            assert await offsets.commit([gone]) == []
            offsets._begun.clear()
        commit = asyncio.create_task(offsets.commit([first, gone], again=True))
        await asked.wait()
        offsets.forget(gone)
        may_answer.set()
        errors = [str(error) for error in await commit]
        lost = [f"{gone} was revoked before its offset was committed"]
        assert errors == ([] if is_committed else lost)

    at_one_broker(update, scenario)
