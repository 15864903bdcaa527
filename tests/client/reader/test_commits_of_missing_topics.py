"""The offsets that members commit when they give up queues of a missing or recreated topic."""

import asyncio

import pytest

from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.pull import missing_topics
from mq.client.pull.process_queue import FlowLimits
from mq.protocol.message import StoredMessage
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
from tests.waiting import until


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


@in_a_loop
async def test_a_member_that_leaves_commits_nothing_of_a_missing_topic() -> None:
    listener = Listener()
    listener.may_continue.set()
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with there.consumer(listener=listener, consume_from=LAST) as consumer:
            await until(lambda: len(listener.got) == 5)
            held = consumer.reader.held[QUEUE]
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await until(lambda: held.is_absent)
            await consumer.reader.assign([])  # as a rebalance that revokes the queue
            assert held.dropped
        assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) < 0


@pytest.mark.parametrize(
    ("becomes", "committed"), [("another", 0), ("absent", -1), ("the same again", 1)]
)
@in_a_loop
async def test_a_queue_revoked_during_a_slow_listener_is_committed_for_its_current_topic(
    becomes: str, committed: int
) -> None:
    listener = Listener()
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with there.consumer(listener=listener, ordered=True) as consumer:
            await until(lambda: bool(listener.got))
            held = consumer.reader.held[QUEUE]
            giving_up = asyncio.create_task(consumer.reader.assign([]))
            await until(lambda: held.dropped)  # it is not pulled any more
            if becomes == "another":
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
                await remake(there, *[b"new%d" % number for number in range(20)])
            else:
                await hide(there)
            if becomes == "the same again":
                await show(there)
            listener.may_continue.set()
            await giving_up
            assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) == committed


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize(
    ("becomes", "committed"), [("another", 0), ("absent", -1), ("the same again", 5)]
)
@in_a_loop
async def test_a_member_closed_during_a_slow_listener_commits_nothing_in_a_recreated_topic(
    ordered: bool, seen: bool, becomes: str, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`seen`: whether the member noticed the missing topic before it closed."""
    monkeypatch.setattr("mq.client.pull.process_queue.CHECK_AFTER_SECONDS", 0.0)
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
            listener.may_continue.set()
            await closing
        if ordered:
            committed = min(committed, 1)
        assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) == committed


@in_a_loop
async def test_a_reopened_member_commits_in_a_topic_that_was_recreated_meanwhile() -> None:
    """The same offset was committed in the former topic less than a minute before."""
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


@pytest.mark.parametrize("closes", [False, True])
@in_a_loop
async def test_a_revoked_full_queue_is_committed_at_the_start_of_a_recreated_topic(
    closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.pull.process_queue.CHECK_AFTER_SECONDS", 0.05)
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
                await consumer.reader.assign([])  # as a rebalance that revokes the queue
            assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) == 0


@pytest.mark.parametrize("finishes", [True, False])
@pytest.mark.parametrize("becomes", ["another", "absent", "the same"])
@in_a_loop
async def test_finished_messages_of_a_paused_queue_are_not_committed_in_a_recreated_topic(
    becomes: str, finishes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash, the new topic would be read from the former offset."""
    monkeypatch.setattr("mq.client.pull.process_queue.CHECK_AFTER_SECONDS", 0.05)
    new = [b"new%d" % number for number in range(20)]
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        table = there.pair.broker.stores.offsets
        async with LitePullConsumer(
            there.address, GROUP, {TOPIC: "*"}, consume_from=FIRST
        ) as consumer:
            got: list[bytes] = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            reader, held = consumer.reader, consumer.reader.held[QUEUE]
            consumer.pause([QUEUE])
            await there.send(b"5")  # ends the pull in flight
            await until(lambda: held.next_offset == 6 and held.is_unseen)
            if becomes != "the same":
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            if becomes == "another":
                await remake(there, *new)
            if finishes:
                consumer._finish_returned()
            errors = await reader.commit(again=True)
            if becomes == "the same":
                assert (errors, table.query(GROUP, TOPIC, 0)) == ([], 5 if finishes else 0)
                return
            assert ["the topic is still the same" in str(error) for error in errors] == [True]
            assert table.query(GROUP, TOPIC, 0) in (-1, 0)
            if becomes == "another":
                await until(lambda: reader.held.get(QUEUE) not in (held, None))
                assert reader.held[QUEUE].paused
                consumer.resume([QUEUE])
                got = []
                while len(got) < 20:
                    got += [message.body for message in await consumer.poll()]
                assert got == new


@in_a_loop
async def test_the_offset_of_a_full_queue_is_not_repeated_in_a_recreated_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Offsets are repeated once a minute, because a broker may have lost them."""
    monkeypatch.setattr("mq.client.pull.process_queue.CHECK_AFTER_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.offsets.offset_store.REPEAT_SECONDS", 0.0)
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        table = there.pair.broker.stores.offsets
        limits = FlowLimits(messages=4)
        async with LitePullConsumer(
            there.address, GROUP, {TOPIC: "*"}, limits=limits, consume_from=FIRST, pull_batch=1
        ) as consumer:
            got: list[bytes] = []
            while len(got) < 2:
                got += [message.body for message in await consumer.poll()]
            reader, held = consumer.reader, consumer.reader.held[QUEUE]
            await until(lambda: held.next_offset == 5 and held.is_unseen)
            assert await reader.commit() == []
            assert table.query(GROUP, TOPIC, 0) == 1
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await remake(there, *[b"new%d" % number for number in range(20)])
            assert await reader.commit() == []
            assert table.query(GROUP, TOPIC, 0) < 0


@in_a_loop
async def test_a_member_that_closes_commits_in_a_topic_that_has_returned() -> None:
    """The member has not noticed that yet, because the pauses between its queries have grown."""
    listener = Listener()
    listener.may_continue.set()
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with there.consumer(listener=listener) as consumer:
            await until(lambda: len(listener.got) == 5)
            held = consumer.reader.held[QUEUE]
            await hide(there)
            await until(lambda: held.is_absent)
            held.absent_pause = 60.0  # the next pause
            await until(lambda: held.absent_pause == missing_topics.LONGEST_PAUSE_SECONDS)
            await show(there)
        assert there.pair.broker.stores.offsets.query(GROUP, TOPIC, 0) == 5


@in_a_loop
async def test_a_paused_queue_is_committed_when_its_topic_has_returned() -> None:
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
