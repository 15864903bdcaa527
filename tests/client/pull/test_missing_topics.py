"""Members of a group whose broker lacks a topic for a moment, or has a recreated one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.errors import ClientError
from mq.client.machine import clock
from mq.client.offsets.local_offsets import LocalOffsetStore
from mq.client.pull import missing_topics
from mq.client.pull.missing_topics import MissingTopics
from mq.client.pull.process_queue import FlowLimits, ProcessQueue
from mq.client.pull.pull_consumer import PullResult, PullStatus
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from mq.protocol.record_codec import encode_record
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.client.missing_topics import (
    LAST,
    QUEUE,
    Listener,
    hide,
    remake,
    shorten_pauses,
    show,
)
from tests.client.scenarios import in_a_loop
from tests.client.scripted import accept_heartbeats, name_server, scripted
from tests.waiting import until


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


@in_a_loop
async def test_a_recreated_topic_continues_at_its_offset_after_it_was_missing() -> None:
    """Without automatic commits, the committed offset is that of the former topic."""
    new = [b"new%d" % number for number in range(5)]
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(there.address, "g", auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            await consumer.commit()
            held = consumer.reader.held[QUEUE]
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await until(lambda: held.is_absent)
            await remake(there, *new)
            got = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            held = consumer.reader.held[QUEUE]
            await hide(there)
            await until(lambda: held.is_absent)
            await show(there)
            await there.send(b"6")
            got += [message.body for message in await consumer.poll()]
            assert got == [*new, b"6"]


@pytest.mark.parametrize("kind", ["clustering", "ordered", "broadcasting"])
def test_pulled_messages_and_the_offset_are_kept_while_the_topic_is_missing(
    kind: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"ordered": kind == "ordered"}
    if kind == "broadcasting":
        options = {"broadcasting": True, "offset_directory": tmp_path}

    async def scenario() -> list[bytes]:
        listener = Listener()
        async with (
            cluster(queues=1) as there,
            there.consumer(
                listener=listener, concurrency=1, consume_from=LAST, **options
            ) as consumer,
        ):
            await until(lambda: QUEUE in consumer.reader.held)
            held = consumer.reader.held[QUEUE]
            await there.send(*numbers(5))
            await until(lambda: held.count == 5)
            await hide(there)
            await until(lambda: held.absent_pause > missing_topics.FIRST_PAUSE_SECONDS)
            assert consumer.assigned.count(QUEUE) == 1
            listener.may_continue.set()
            await until(lambda: len(listener.got) == 5)
            with pytest.raises(ClientError, match="has no such topic now"):
                await consumer.commit()
            await show(there)
            await there.send(b"5")
            await until(lambda: not held.count and held.commit_offset == 6)
            assert consumer.reader.held[QUEUE] is held
            await consumer.commit()
            assert await consumer.reader.offsets.committed(QUEUE) == 6
        return listener.got

    assert asyncio.run(scenario()) == numbers(6)


@in_a_loop
async def test_a_replay_continues_at_the_sought_offset() -> None:
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(there.address, "g", auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            got: list[StoredMessage] = []
            while len(got) < 5:
                got += await consumer.poll()
            await consumer.commit()
            consumer.pause([QUEUE])  # so that nothing is pulled before the topic is absent
            await consumer.seek(QUEUE, 0)
            held = consumer.reader.held[QUEUE]
            await hide(there)
            consumer.resume([QUEUE])
            await until(lambda: held.is_absent)
            await show(there)
            again: list[StoredMessage] = []
            while len(again) < 5:
                again += await consumer.poll()
            assert [message.body for message in again] == numbers(5)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_a_recreated_topic_with_more_messages_is_read_from_its_start(
    ordered: bool, commits: bool
) -> None:
    new = [b"new%d" % number for number in range(20)]

    async def scenario() -> list[bytes]:
        listener = Listener()
        listener.may_continue.set()
        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            async with there.consumer(
                listener=listener, consume_from=LAST, ordered=ordered
            ) as consumer:
                await until(lambda: len(listener.got) == 5)
                if commits:
                    await consumer.commit()
                held = consumer.reader.held[QUEUE]
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
                await until(lambda: held.is_absent)
                await remake(there, *new)
                await until(lambda: len(listener.got) == 25)
                assert held.dropped
        return listener.got[5:]

    assert asyncio.run(scenario()) == new


@pytest.mark.parametrize("many", [3, 20])
def test_with_broadcasting_the_offset_in_the_file_is_reset_with_the_topic(
    tmp_path: Path, many: int
) -> None:
    new = [b"new%d" % number for number in range(many)]

    async def scenario() -> list[bytes]:
        listener = Listener()
        listener.may_continue.set()
        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            async with there.consumer(
                listener=listener, consume_from=LAST, broadcasting=True, offset_directory=tmp_path
            ) as consumer:
                await until(lambda: QUEUE in consumer.reader.held)
                await consumer.reader.seek(QUEUE, 0)
                await until(lambda: len(listener.got) == 5)
                await consumer.commit()
                store = consumer.reader.offsets
                assert isinstance(store, LocalOffsetStore)
                held = consumer.reader.held[QUEUE]
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
                await until(lambda: held.is_absent)
                await remake(there, *new)
                await until(lambda: held.dropped and QUEUE in consumer.reader.held)
                written = LocalOffsetStore(tmp_path, consumer.session.client_id, GROUP)
                assert await written.committed(QUEUE) in range(many + 1)
                await until(lambda: len(listener.got) == 5 + many)
        return listener.got[5:]

    assert asyncio.run(scenario()) == new


@pytest.mark.parametrize("expression", ["*", "wanted"])
def test_a_recreated_topic_is_read_from_its_start_if_none_of_the_former_was_read(
    expression: str, tmp_path: Path
) -> None:
    """The consumer started at the end of the topic, or found no subscribed tag."""
    new = [b"new%d" % number for number in range(20)]

    async def scenario() -> list[bytes]:
        listener = Listener()
        listener.may_continue.set()
        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            consumer = Consumer(
                there.address, GROUP, {TOPIC: expression}, listener=listener,
                broadcasting=True, offset_directory=tmp_path,
                consume_from=LAST if expression == "*" else FIRST,
            )  # fmt: skip
            async with consumer:
                await until(lambda: QUEUE in consumer.reader.held)
                held = consumer.reader.held[QUEUE]
                await until(lambda: held.next_offset == 5)
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
                await until(lambda: held.is_absent)
                await remake(there, *new, tag="wanted")
                await until(lambda: b"new19" in listener.got)
                assert held.dropped
        return listener.got

    assert asyncio.run(scenario()) == new


@pytest.mark.parametrize("why", ["paused", "full"])
@in_a_loop
async def test_a_topic_recreated_while_it_was_not_pulled_is_read_from_its_start(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pull has found the topic missing."""
    monkeypatch.setattr("mq.client.pull.process_queue.CHECK_AFTER_SECONDS", 0.05)
    new = [b"new%d" % number for number in range(20)]
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        limits = FlowLimits(messages=5)
        async with LitePullConsumer(there.address, GROUP, {TOPIC: "*"}, limits=limits) as consumer:
            got: list[bytes] = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            held = consumer.reader.held[QUEUE]
            if why == "paused":
                await consumer.commit()
                await until(lambda: held.next_offset == 5)
                consumer.pause([QUEUE])
                await there.send(b"5")  # ends the pull in flight
                await until(lambda: held.next_offset == 6)
            await until(lambda: held.is_unseen)
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await remake(there, *new)
            consumer.resume([QUEUE])
            got = []
            while b"new19" not in got:
                got += [message.body for message in await consumer.poll()]
            assert [body for body in got if body != b"5"] == new


@pytest.mark.parametrize("is_another", [False, True])
@pytest.mark.parametrize(
    "refusal",
    [
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.NO_PERMISSION,
        ResponseCode.SYSTEM_ERROR,
    ],
)
@in_a_loop
async def test_the_first_message_is_pulled_if_its_store_time_cannot_be_queried(
    refusal: ResponseCode, is_another: bool
) -> None:
    """A Java proxy serves only the requests of its own consumers, and a snode does not forward this
    one. A Java broker (5.x) requires permission GET for it and for a search by time, even of an
    account that may only read.
    """
    table = {"0": "5"}
    pulls: list[int] = []

    def pull(request: Command, channel: Channel) -> Command:
        offset = int(request.fields["queueOffset"])
        pulls.append(offset)
        if len(pulls) == 1:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST)
        numbers = {"minOffset": 0, "maxOffset": 6, "suggestWhichBrokerId": 0}
        fields = {name: str(number) for name, number in numbers.items()}
        stored = int(clock.time() * 1000) + 1 if is_another else 0
        message = StoredMessage(TOPIC, b"%d" % offset, queue_offset=offset, store_timestamp=stored)
        body = encode_record(message)
        if offset == 6:
            return request.reply(ResponseCode.PULL_NOT_FOUND, {**fields, "nextBeginOffset": "6"})
        return request.reply(0, {**fields, "nextBeginOffset": str(offset + 1)}, body)

    def committed(request: Command, channel: Channel) -> Command:
        return request.reply(0, {"offset": table["0"]})

    def commit(request: Command, channel: Channel) -> Command:
        table["0"] = request.fields["commitOffset"]
        return request.reply(0)

    def refuse(request: Command, channel: Channel) -> Command:
        return request.reply(refusal)

    codes = RequestCode
    handlers = {**accept_heartbeats(), codes.PULL_MESSAGE: pull}
    handlers |= {codes.QUERY_CONSUMER_OFFSET: committed, codes.UPDATE_CONSUMER_OFFSET: commit}
    handlers |= {codes.GET_EARLIEST_MSG_STORETIME: refuse, codes.SEARCH_OFFSET_BY_TIMESTAMP: refuse}
    async with scripted(handlers) as proxy, scripted(name_server({"broker-a": proxy})) as namesrv:
        async with LitePullConsumer(namesrv, GROUP) as consumer, asyncio.timeout(20):
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while b"5" not in got:
                got += [message.body for message in await consumer.poll()]
    assert got == (numbers(6) if is_another else [b"5"])
    assert pulls[1:3] == [5, 0]


@in_a_loop
async def test_a_recreated_topic_is_read_from_its_start_although_the_commit_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Java broker of 4.9 keeps the group's offset of the former topic."""
    monkeypatch.setattr("mq.client.reader.revoked_queues.MOVE_AGAIN_SECONDS", 0.01)
    table = {"0": "5"}
    pulls: list[int] = []
    sent_offsets: list[str] = []

    def pull(request: Command, channel: Channel) -> Command:
        offset = int(request.fields["queueOffset"])
        pulls.append(offset)
        if len(pulls) == 1:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST)
        numbers = {"minOffset": 0, "maxOffset": 9, "suggestWhichBrokerId": 0}
        fields = {name: str(number) for name, number in numbers.items()}
        body = encode_record(StoredMessage(TOPIC, b"%d" % offset, queue_offset=offset))
        if offset == 9:
            return request.reply(ResponseCode.PULL_NOT_FOUND, {**fields, "nextBeginOffset": "9"})
        return request.reply(0, {**fields, "nextBeginOffset": str(offset + 1)}, body)

    def first_stored(request: Command, channel: Channel) -> Command:
        return request.reply(0, {"timestamp": str(int(clock.time() * 1000) + 1)})

    def commit(request: Command, channel: Channel) -> Command:
        sent_offsets.append(request.fields["commitOffset"])
        if len(sent_offsets) < 3:
            return request.reply(ResponseCode.SYSTEM_BUSY)
        table["0"] = request.fields["commitOffset"]
        return request.reply(0)

    codes = RequestCode
    handlers = {**accept_heartbeats(), codes.PULL_MESSAGE: pull}
    handlers[codes.QUERY_CONSUMER_OFFSET] = lambda request, channel: request.reply(
        0, {"offset": table["0"]}
    )
    handlers |= {codes.UPDATE_CONSUMER_OFFSET: commit}
    handlers |= {codes.GET_EARLIEST_MSG_STORETIME: first_stored}
    async with scripted(handlers) as broker, scripted(name_server({"broker-a": broker})) as namesrv:
        async with LitePullConsumer(namesrv, GROUP) as consumer, asyncio.timeout(20):
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while b"8" not in got:
                got += [message.body for message in await consumer.poll()]
    assert got == numbers(9)
    assert sent_offsets[:3] == ["0", "0", "0"]


@pytest.mark.parametrize(("age", "is_other"), [(50, True), (70, False)])
@in_a_loop
async def test_a_topic_stored_long_before_the_last_pull_is_not_a_recreated_one(
    age: int, is_other: bool, tmp_path: Path
) -> None:
    """Its store time is later than that of the last message read, because a clock was set back."""
    stored = int((clock.time() - age) * 1000)

    def first_stored(request: Command, channel: Channel) -> Command:
        return request.reply(0, {"timestamp": str(stored)})

    handlers: dict[int, Handler] = {RequestCode.GET_EARLIEST_MSG_STORETIME: first_stored}
    async with (
        scripted(handlers) as broker,
        scripted(name_server({"broker-a": broker})) as namesrv,
        Session(namesrv) as session,
    ):
        missing = MissingTopics(session, "g", LocalOffsetStore(tmp_path, "c", "g"))
        held = ProcessQueue(QUEUE, 0)
        held.add([StoredMessage(TOPIC, b"", queue_offset=6, store_timestamp=stored - 1)])
        result = PullResult(PullStatus.FOUND, [], 8, 0, 9, 0)
        assert await missing.is_other(held, result, 7) == is_other


@in_a_loop
async def test_a_lagging_slave_does_not_show_whether_a_topic_was_recreated(tmp_path: Path) -> None:
    async with Session("127.0.0.1:1") as session:  # no request is sent
        missing = MissingTopics(session, "g", LocalOffsetStore(tmp_path, "c", "g"))
        held = ProcessQueue(QUEUE, 7)
        await missing.wait(held, clock.monotonic())
        lagging = PullResult(PullStatus.NO_MATCHED, [], 7, 0, 5, 0)
        assert await missing.is_another(held, lagging, 7) is None
        assert held.is_absent
        there = lagging._replace(min_offset=7, max_offset=7)
        assert await missing.is_another(held, there, 7) is False
        assert not held.is_absent
