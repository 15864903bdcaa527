"""Members of a group whose broker lacks a topic for a moment, or has another one of that name."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mq.client import absence
from mq.client.absence import Absences
from mq.client.consumer import Consumer
from mq.client.errors import ClientError, MQError, SystemBusy
from mq.client.lite_pull_consumer import LitePullConsumer
from mq.client.local_offsets import LocalOffsetStore
from mq.client.machine import clock
from mq.client.process_queue import FlowLimits, ProcessQueue
from mq.client.pull_consumer import PullResult, PullStatus
from mq.client.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from mq.protocol.record_codec import encode_record
from tests.client.clusters import FIRST, GROUP, TOPIC, Cluster, cluster, numbers
from tests.client.scenarios import in_a_loop
from tests.client.scripted import accept_heartbeats, name_server, scripted
from tests.waiting import until

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
CONFIG = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absence, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.pulling.PULL_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.pulling.LONG_POLL_SECONDS", 0.2)
    monkeypatch.setattr("mq.client.reader.REBALANCE_AGAIN_SECONDS", 0.05)


async def hide(there: Cluster) -> None:
    """Have the broker know nothing of the topic, as one whose table is late; all else stays."""
    await there.pair.broker.stores.topics.delete(TOPIC)


async def show(there: Cluster) -> None:
    await there.pair.broker.stores.topics.update(CONFIG)


async def remake(there: Cluster, *bodies: bytes, tag: str | None = None) -> None:
    await there.admin.create_topic(there.pair.broker.address, CONFIG)
    await there.send(*bodies, tag=tag)


class Listener:
    """Waits in the first message until it may go on."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.goes_on = asyncio.Event()

    async def __call__(self, message: StoredMessage) -> None:
        self.got.append(message.body)
        await self.goes_on.wait()


@pytest.mark.parametrize("kind", ["clustering", "ordered", "broadcasting"])
def test_what_is_in_hand_and_the_place_stay_while_a_broker_lacks_the_topic(
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
            await until(lambda: held.absent_pause > absence.FIRST_PAUSE_SECONDS)
            assert consumer.assigned.count(QUEUE) == 1
            listener.goes_on.set()
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
async def test_a_replay_goes_on_where_its_user_has_put_it() -> None:
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


@in_a_loop
async def test_a_member_that_leaves_commits_nothing_of_an_absent_topic() -> None:
    listener = Listener()
    listener.goes_on.set()
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with there.consumer(listener=listener, consume_from=LAST) as consumer:
            await until(lambda: len(listener.got) == 5)
            held = consumer.reader.held[QUEUE]
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await until(lambda: held.is_absent)
            await consumer.reader.assign([])  # as a rebalance that takes the queue away
            assert held.dropped
        assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) < 0


@pytest.mark.parametrize(
    ("becomes", "committed"), [("another", 0), ("absent", -1), ("the same again", 1)]
)
@in_a_loop
async def test_a_queue_that_is_given_up_behind_a_long_listener_is_committed_as_its_topic_is_by_then(
    becomes: str, committed: int
) -> None:
    listener = Listener()
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with there.consumer(listener=listener, ordered=True) as consumer:
            await until(lambda: bool(listener.got))
            held = consumer.reader.held[QUEUE]
            giving_up = asyncio.create_task(consumer.reader.assign([]))
            await until(lambda: held.dropped)  # nobody pulls it any more
            if becomes == "another":
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
                await remake(there, *[b"new%d" % number for number in range(20)])
            else:
                await hide(there)
            if becomes == "the same again":
                await show(there)
            listener.goes_on.set()
            await giving_up
            assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) == committed


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize(
    ("becomes", "committed"), [("another", 0), ("absent", -1), ("the same again", 5)]
)
@in_a_loop
async def test_a_member_that_closes_behind_a_long_listener_commits_nothing_in_another_topic(
    ordered: bool, seen: bool, becomes: str, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it has `seen` that the topic was absent before, or not."""
    monkeypatch.setattr("mq.client.process_queue.LOOK_AFTER_SECONDS", 0.0)
    listener = Listener()
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        consumer = there.consumer(listener=listener, ordered=ordered, concurrency=5)
        async with consumer:
            await until(lambda: len(listener.got) == (1 if ordered else 5))
            held = consumer.reader.held[QUEUE]
            if seen:
                await hide(there)
                await until(lambda: held.is_absent)
            closing = asyncio.create_task(consumer.close(grace=60.0))
            await until(lambda: consumer.reader._is_stopped and not consumer.reader._pulls)
            if becomes == "another":
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
                await remake(there, *[b"new%d" % number for number in range(20)])
            else:
                await hide(there)
            if becomes == "the same again":
                await show(there)
            listener.goes_on.set()
            await closing
        if ordered:
            committed = min(committed, 1)
        assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) == committed


@in_a_loop
async def test_a_member_that_is_opened_again_commits_in_a_topic_that_was_made_again_meanwhile() -> (
    None
):
    """It had told that very offset less than a minute before: of the former topic."""
    consumed = []
    async with cluster(queues=1) as there:
        consumer = LitePullConsumer(there.address, GROUP, {TOPIC: "*"}, consume_from=FIRST)
        for bodies in (numbers(5), [b"new%d" % number for number in range(5)]):
            await there.send(*bodies)
            async with consumer:
                got: list[bytes] = []
                while len(got) < 5:
                    got += [message.body for message in await consumer.poll()]
            consumed.append(there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0))
            assert got == bodies
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await remake(there)
    assert consumed == [5, 5]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_another_topic_with_more_messages_is_read_from_its_beginning(
    ordered: bool, commits: bool
) -> None:
    new = [b"new%d" % number for number in range(20)]

    async def scenario() -> list[bytes]:
        listener = Listener()
        listener.goes_on.set()
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
def test_with_broadcasting_the_place_in_the_file_goes_with_the_topic(
    tmp_path: Path, many: int
) -> None:
    new = [b"new%d" % number for number in range(many)]

    async def scenario() -> list[bytes]:
        listener = Listener()
        listener.goes_on.set()
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
def test_another_topic_is_read_from_its_beginning_by_who_has_read_none_of_the_former(
    expression: str, tmp_path: Path
) -> None:
    """Nothing was there when it began to read, or nothing that it wants."""
    new = [b"new%d" % number for number in range(20)]

    async def scenario() -> list[bytes]:
        listener = Listener()
        listener.goes_on.set()
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


@in_a_loop
async def test_a_place_that_a_user_puts_as_another_topic_is_found_stays() -> None:
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(there.address, "g", auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            reader = consumer.reader
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await until(lambda: reader.held[QUEUE].is_absent)
            async with reader._changing:  # as a rebalance that is under way
                seeking = asyncio.create_task(reader.seek(QUEUE, 15))
                await asyncio.sleep(0)
                await remake(there, *[b"new%d" % number for number in range(20)])
                await until(reader._pulls[QUEUE].done)
            await seeking
            got = []
            while b"new19" not in got:
                got += [message.body for message in await consumer.poll()]
            assert got == [b"new%d" % number for number in range(15, 20)]


@pytest.mark.parametrize("sought", [0, 3, 5])
@in_a_loop
async def test_a_place_that_a_user_has_put_is_kept_while_a_broker_lacks_the_topic(
    sought: int,
) -> None:
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(there.address, "g", auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            consumer.pause([QUEUE])
            await consumer.seek(QUEUE, sought)
            held = consumer.reader.held[QUEUE]
            await hide(there)
            consumer.resume([QUEUE])
            await until(lambda: held.is_absent)
            await show(there)
            await there.send(b"5")
            got: list[StoredMessage] = []
            while not got or got[-1].body != b"5":
                got += await consumer.poll()
            assert [message.body for message in got] == numbers(6)[sought:]
            assert consumer.reader.held[QUEUE] is held


@pytest.mark.parametrize("assigns", [False, True])
@pytest.mark.parametrize("why", ["another topic", "a reset"])
@in_a_loop
async def test_a_queue_that_is_paused_stays_so_where_it_goes_on_elsewhere(
    why: str, assigns: bool
) -> None:
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        subscriptions = {} if assigns else {TOPIC: "*"}
        async with LitePullConsumer(
            there.address, GROUP, subscriptions, consume_from=FIRST
        ) as consumer:
            if assigns:
                await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            held = consumer.reader.held[QUEUE]
            if why == "a reset":
                consumer.pause([QUEUE])
                await consumer.reader.reset({QUEUE: 2})
            else:
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
                await until(lambda: held.is_absent)
                consumer.pause([QUEUE])
                await remake(there, b"2", b"3", b"4")
            await until(lambda: held.dropped and QUEUE in consumer.reader.held)
            assert await consumer.poll(0.3) == []
            consumer.resume([QUEUE])
            got = []
            while len(got) < 3:
                got += [message.body for message in await consumer.poll()]
            assert got == [b"2", b"3", b"4"]


@pytest.mark.parametrize("fails", ["its commit", "its taking"])
@in_a_loop
async def test_a_queue_that_is_reset_again_goes_on_where_it_was_put_last(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker was to be told of the first place still, which is tried for a minute."""
    monkeypatch.setattr("mq.client.leaving.HAND_OVER_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.leaving.MOVE_AGAIN_SECONDS", 0.01)
    refuses: set[str] = set()

    class Busy(LocalOffsetStore):
        async def commit(self, *of: Any, **options: Any) -> list[MQError]:
            if "its commit" in refuses:
                return [SystemBusy("", "")]
            return await super().commit(*of, **options)

        async def committed(self, queue: MessageQueue) -> int | None:
            if "its taking" in refuses:
                raise SystemBusy("", "")
            return await super().committed(queue)

    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        store = Busy(tmp_path, "client", GROUP)
        async with LitePullConsumer(
            there.address, GROUP, offsets=store, consume_from=FIRST
        ) as consumer:
            await consumer.assign([QUEUE])
            refuses.add(fails)
            await consumer.reader.reset({QUEUE: 2})
            assert consumer.assigned == []
            await consumer.reader.reset({QUEUE: 4})
            refuses.clear()
            assert [message.body for message in await consumer.poll()] == [b"4"]


@in_a_loop
async def test_a_queue_that_is_assigned_again_is_not_paused_though_it_was_as_it_was_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken away while its broker was still to be told of the reset."""
    monkeypatch.setattr("mq.client.leaving.HAND_OVER_SECONDS", 0.05)
    is_told = asyncio.Event()

    class Late(LocalOffsetStore):
        async def commit(self, *of: Any, **options: Any) -> list[MQError]:
            await is_told.wait()
            return await super().commit(*of, **options)

    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        store = Late(tmp_path, "client", GROUP)
        async with LitePullConsumer(
            there.address, GROUP, offsets=store, consume_from=FIRST
        ) as consumer:
            await consumer.assign([QUEUE])
            consumer.pause([QUEUE])
            await consumer.reader.reset({QUEUE: 2})
            assert consumer.assigned == []
            await consumer.assign([])
            is_told.set()
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 3:
                got += [message.body for message in await consumer.poll()]
            assert got == numbers(5)[2:]


@pytest.mark.parametrize("why", ["paused", "full"])
@in_a_loop
async def test_a_topic_that_was_made_again_while_nobody_pulled_is_read_from_its_beginning(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has seen that it was absent."""
    monkeypatch.setattr("mq.client.process_queue.LOOK_AFTER_SECONDS", 0.05)
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
                await there.send(b"5")  # which ends the pull that is under way
                await until(lambda: held.next_offset == 6)
            await until(lambda: held.is_unseen)
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await remake(there, *new)
            consumer.resume([QUEUE])
            got = []
            while b"new19" not in got:
                got += [message.body for message in await consumer.poll()]
            assert [body for body in got if body != b"5"] == new


@pytest.mark.parametrize("closes", [False, True])
@in_a_loop
async def test_a_full_queue_is_given_up_at_the_beginning_of_a_topic_that_was_made_again(
    closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.process_queue.LOOK_AFTER_SECONDS", 0.05)
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        limits = FlowLimits(messages=5)
        async with LitePullConsumer(there.address, GROUP, {TOPIC: "*"}, limits=limits) as consumer:
            got: list[bytes] = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await remake(there, *[b"new%d" % number for number in range(20)])
            consumer._finish_returned()
            if closes:
                await consumer.close()
            else:
                await consumer.reader.assign([])  # as a rebalance that takes the queue away
            assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) == 0


@in_a_loop
async def test_a_member_that_closes_commits_where_a_topic_is_there_again() -> None:
    """It has not seen that yet: it is asked ever more slowly."""
    listener = Listener()
    listener.goes_on.set()
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with there.consumer(listener=listener) as consumer:
            await until(lambda: len(listener.got) == 5)
            held = consumer.reader.held[QUEUE]
            await hide(there)
            await until(lambda: held.is_absent)
            held.absent_pause = 60.0  # the next one
            await until(lambda: held.absent_pause == absence.LONGEST_PAUSE_SECONDS)
            await show(there)
        assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) == 5


@in_a_loop
async def test_a_queue_that_is_paused_is_committed_when_its_topic_is_there_again() -> None:
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(there.address, "g", auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            got: list[StoredMessage] = []
            while len(got) < 5:
                got += await consumer.poll()
            held = consumer.reader.held[QUEUE]
            await hide(there)
            await until(lambda: held.is_absent)
            consumer.pause([QUEUE])
            await show(there)
            await there.send(b"5")
            await until(lambda: not held.is_absent)
            await consumer.commit()
            assert await consumer.committed(QUEUE) == 5
            consumer.resume([QUEUE])
            assert [message.body for message in await consumer.poll()] == [b"5"]


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
async def test_where_nobody_tells_when_the_first_message_was_stored_it_is_read(
    refusal: ResponseCode, is_another: bool
) -> None:
    """A Java proxy has the requests of its consumers alone; nor does a snode pass it on. A Java
    broker (5.x) wants GET for it, and for a search by time, of an account that may only read."""
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
async def test_another_topic_is_read_from_its_beginning_also_where_that_is_not_committed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Java broker of 4.9 keeps the group's offset in the former topic."""
    monkeypatch.setattr("mq.client.leaving.MOVE_AGAIN_SECONDS", 0.01)
    table = {"0": "5"}
    pulls: list[int] = []
    told: list[str] = []

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
        told.append(request.fields["commitOffset"])
        if len(told) < 3:
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
    assert told[:3] == ["0", "0", "0"]


@pytest.mark.parametrize(("age", "is_other"), [(50, True), (70, False)])
@in_a_loop
async def test_what_was_stored_long_before_the_last_pull_is_no_other_topic(
    age: int, is_other: bool, tmp_path: Path
) -> None:
    """Though its time is behind that of what was read last: a clock was put back."""
    stored = int((clock.time() - age) * 1000)

    def first_stored(request: Command, channel: Channel) -> Command:
        return request.reply(0, {"timestamp": str(stored)})

    handlers: dict[int, Handler] = {RequestCode.GET_EARLIEST_MSG_STORETIME: first_stored}
    async with (
        scripted(handlers) as broker,
        scripted(name_server({"broker-a": broker})) as namesrv,
        Session(namesrv) as session,
    ):
        absences = Absences(session, "g", LocalOffsetStore(tmp_path, "c", "g"))
        held = ProcessQueue(QUEUE, 0)
        held.add([StoredMessage(TOPIC, b"", queue_offset=6, store_timestamp=stored - 1)])
        result = PullResult(PullStatus.FOUND, [], 8, 0, 9, 0)
        assert await absences.is_other(held, result, 7) == is_other


@in_a_loop
async def test_a_replica_that_is_behind_does_not_say_which_topic_it_is(tmp_path: Path) -> None:
    async with Session("127.0.0.1:1") as session:  # where nobody is asked for anything
        absences = Absences(session, "g", LocalOffsetStore(tmp_path, "c", "g"))
        held = ProcessQueue(QUEUE, 7)
        await absences.wait(held, clock.monotonic())
        behind = PullResult(PullStatus.NO_MATCHED, [], 7, 0, 5, 0)
        assert await absences.is_another(held, behind, 7) is None
        assert held.is_absent
        there = behind._replace(min_offset=7, max_offset=7)
        assert await absences.is_another(held, there, 7) is False
        assert not held.is_absent
