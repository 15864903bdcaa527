"""Suspended pulls: what wakes them, what does not, how they end, and their costs."""

import asyncio
import gc
import time
import tracemalloc
from pathlib import Path

import pytest

from mq.daemons.broker.filters.sql92 import read_filter
from mq.daemons.broker.pull import long_polling, pull_handlers
from mq.daemons.broker.pull.long_polling import held_pulls
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests.daemons.broker.harness import create_topic
from tests.daemons.broker.pulls import (
    TOPIC,
    PullBroker,
    bodies,
    outcome,
    pull,
    request,
    serve,
    start_pull,
)
from tests.daemons.peer import Peer

FOUND = ResponseCode.SUCCESS
NOT_FOUND = ResponseCode.PULL_NOT_FOUND
RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED

LONG = 60_000  # ms: no test waits that long


async def held(broker: PullBroker, peer: Peer, queue_id: int = 3) -> None:
    """Wait until the broker has accepted the pulls sent before: they are served in order."""
    reply = await pull(peer, request(0, opaque=99_999, queue_id=queue_id))
    assert reply.code == NOT_FOUND


def test_a_message_wakes_every_pull_that_waits_for_it_in_their_order(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        for opaque in range(5):
            start_pull(peer, request(0, opaque=opaque, hold=LONG))
        start_pull(peer, request(0, opaque=50, queue_id=1, hold=LONG))
        await held(broker, peer)
        assert len(broker.queue.waiting) == 5
        await broker.put(b"news")
        replies = [await peer.receive() for _ in range(5)]
        assert [reply.opaque for reply in replies] == [0, 1, 2, 3, 4]
        assert {outcome(reply) for reply in replies} == {(FOUND, 1)}
        assert bodies(replies[4]) == [b"news"]
        assert not broker.queue.waiting
        assert len(broker.stores.messages.queue("orders", 1).waiting) == 1

    serve(tmp_path, script)


def test_only_a_matching_message_wakes_a_pull_with_a_filter(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, opaque=1, tags="A || C", hold=LONG))
        await held(broker, peer)
        await broker.put(b"no", tag="B")
        await broker.put(*[b"no"] * 30, tag="D")  # over the end of a queue file
        await held(broker, peer)
        assert len(broker.queue.waiting) == 1
        await broker.put(b"yes", tag="C")
        reply = await peer.receive()
        assert reply.opaque == 1
        while reply.code == RETRY:  # a reply ends with a queue file
            reply = await pull(peer, request(int(reply.fields["nextBeginOffset"]), tags="A || C"))
        assert (outcome(reply), bodies(reply)) == ((FOUND, 32), [b"yes"])

    serve(tmp_path, script)


@pytest.mark.parametrize("before", [799, 800, 2000])
def test_a_matching_message_after_many_others_is_found(tmp_path: Path, before: int) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, tags="A", hold=LONG))
        await held(broker, peer)
        await asyncio.gather(broker.put(*[b"no"] * before, tag="B"), broker.put(b"yes", tag="A"))
        reply = await peer.receive()
        while reply.code == RETRY:
            reply = await pull(peer, request(int(reply.fields["nextBeginOffset"]), tags="A"))
        assert (outcome(reply), bodies(reply)) == ((FOUND, before + 1), [b"yes"])

    serve(tmp_path, script, mappedFileSizeCommitLog="1000000", mappedFileSizeConsumeQueue="60000")


def test_a_pull_without_a_match_in_800_messages_continues_after_them(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, opaque=1, tags="A", hold=LONG))
        await held(broker, peer)
        await broker.put(*[b"no"] * 799, tag="B")
        await held(broker, peer)
        assert len(broker.queue.waiting) == 1
        await broker.put(b"no", tag="B")
        assert outcome(await peer.receive()) == (RETRY, 800)

    serve(tmp_path, script, mappedFileSizeConsumeQueue="60000")


def test_a_wait_that_times_out_gets_not_found_at_the_same_offset(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        assert outcome(await pull(peer, request(0, hold=20))) == (NOT_FOUND, 0)
        await broker.put(b"one", b"two", tag="B")
        assert outcome(await pull(peer, request(2, hold=20))) == (NOT_FOUND, 2)
        assert not broker.queue.waiting

    serve(tmp_path, script)


def test_a_wait_that_times_out_continues_after_messages_without_a_match(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, opaque=1, tags="A", hold=300))
        await held(broker, peer)
        await broker.put(b"one", b"two", tag="B")
        assert outcome(await peer.receive()) == (RETRY, 2)

    serve(tmp_path, script)


def test_without_long_polling_the_wait_is_short(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        assert outcome(await pull(peer, request(0, hold=LONG))) == (NOT_FOUND, 0)

    serve(tmp_path, script, longPollingEnable="false", shortPollingTimeMills="20")


@pytest.mark.parametrize("wait", ["-5", "0"])
def test_a_wait_of_zero_ends_at_once(tmp_path: Path, wait: str) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        command = request(0, hold=0, suspendTimeoutMillis=wait)
        assert outcome(await pull(peer, command)) == (NOT_FOUND, 0)

    serve(tmp_path, script)


def test_a_huge_wait_is_accepted_and_one_that_is_not_a_number_refused(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, opaque=1, hold=(1 << 63) - 1))
        reply = await pull(peer, request(0, opaque=2, hold=0, suspendTimeoutMillis="9" * 400))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert len(broker.queue.waiting) == 1
        await broker.put(b"news")
        assert outcome(await peer.receive()) == (FOUND, 1)

    serve(tmp_path, script)


def test_a_closed_connection_leaves_no_pull(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, opaque=1, hold=LONG))
        await held(broker, peer)
        async with Peer(broker.listener.port) as other:
            for queue_id in (0, 0, 1, 2):
                start_pull(other, request(0, queue_id=queue_id, hold=LONG))
            await held(broker, other)
            assert len(broker.queue.waiting) == 3
            (channel,) = (c for c in broker.listener.channels if c.remote == other.address)
            closed = asyncio.Event()
            channel.on_close.append(lambda _: closed.set())
        await asyncio.wait_for(closed.wait(), 30)
        waiting = [
            len(broker.stores.messages.queue("orders", number).waiting) for number in range(3)
        ]
        assert waiting == [1, 0, 0]
        await broker.put(b"news")
        assert outcome(await peer.receive()) == (FOUND, 1)

    serve(tmp_path, script)


def test_a_change_of_a_topic_answers_suspended_pulls(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, hold=2000))
        await held(broker, peer)
        await broker.stores.topics.delete("orders")
        assert (await peer.receive()).code == ResponseCode.TOPIC_NOT_EXIST

    serve(tmp_path, script)


@pytest.mark.parametrize(
    "filtered",
    [{}, {"tags": "wanted"}, {"subscription": "TAGS = 'wanted'", "expressionType": "SQL92"}],
)
def test_suspended_pulls_of_a_deleted_topic_are_answered_at_once(
    tmp_path: Path, filtered: dict[str, str]
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        if "subscription" in filtered:  # otherwise the first pulls wait for a thread that parses it
            read_filter(filtered["subscription"])
        await broker.put(*[b"other"] * 7, tag="other")
        for opaque, offset in ((1, 7), (2, 7)):
            start_pull(peer, request(offset, opaque=opaque, hold=LONG, **filtered))  # type: ignore[arg-type]
        await held(broker, peer)
        assert len(broker.queue.waiting) == 2
        async with Peer(broker.port) as admin:
            deleted = await admin.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
            assert deleted.code == FOUND
            replies = [await peer.receive() for _ in range(2)]
            assert {reply.code for reply in replies} == {ResponseCode.TOPIC_NOT_EXIST}
            await create_topic(admin, TOPIC)
            start_pull(peer, request(0, hold=LONG))
            await broker.put(b"anew", tag="wanted")
            assert bodies(await peer.receive()) == [b"anew"]

    serve(tmp_path, script, enablePropertyFilter="true")


def test_suspended_pulls_of_a_restarted_queue_continue_in_the_new_one(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(b"old")
        start_pull(peer, request(1, hold=LONG))
        await held(broker, peer)
        store = broker.stores.messages
        store._restart_queues({(TOPIC, 0): store.log.position})
        assert (await peer.receive()).code == MOVED
        assert not broker.queue.waiting and not broker.queue.deleted

    serve(tmp_path, script)


def test_suspended_pulls_per_connection_are_limited_and_the_next_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_handlers, "MOST_HELD", 3)

    async def script(broker: PullBroker, peer: Peer) -> None:
        for opaque in range(3):
            start_pull(peer, request(0, opaque=opaque, hold=LONG))
        assert outcome(await pull(peer, request(0, opaque=3, hold=LONG))) == (NOT_FOUND, 0)
        async with Peer(broker.listener.port) as other:  # has its own limit
            start_pull(other, request(0, opaque=4, hold=LONG))
            await held(broker, other)
            assert len(broker.queue.waiting) == 4
        await broker.put(b"news")
        for _ in range(3):
            await peer.receive()
        start_pull(peer, request(1, opaque=5, hold=LONG))
        await held(broker, peer)
        assert len(broker.queue.waiting) == 1

    serve(tmp_path, script)


def test_ten_thousand_waiting_pulls_cost_nothing_until_a_message_wakes_all(
    tmp_path: Path,
) -> None:
    count = 10_000

    async def script(broker: PullBroker, peer: Peer) -> None:
        peer.writer.write(
            b"".join(encode(request(0, opaque=opaque, hold=LONG)) for opaque in range(count))
        )
        await held(broker, peer)
        assert len(broker.queue.waiting) == count
        began = time.thread_time()  # CPU time of this thread: other threads belong to other tests
        await asyncio.sleep(0.5)
        assert time.thread_time() - began < 0.2
        began = time.thread_time()
        await broker.put(b"news")
        replies = [(await peer.receive()).opaque for _ in range(count)]
        assert replies == list(range(count))
        assert not broker.queue.waiting
        assert time.thread_time() - began < 20  # constant time for each: in total it takes a second

    serve(tmp_path, script)


def test_pulls_beyond_the_time_of_one_iteration_check_all_messages_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else waits while thousands of long filters examine each message."""
    monkeypatch.setattr(long_polling, "TURN_SECONDS", 0.0)  # one in each iteration
    count = 50

    async def script(broker: PullBroker, peer: Peer) -> None:
        for opaque in range(count):
            start_pull(peer, request(0, opaque=opaque, tags="B", hold=LONG))
        await held(broker, peer)
        await broker.put(b"another", tag="A")
        await broker.put(b"news", tag="B")
        assert len(broker.queue.waiting) > count // 2
        replies = [await peer.receive() for _ in range(count)]
        assert sorted(reply.opaque for reply in replies) == list(range(count))
        assert {outcome(reply) for reply in replies} == {(FOUND, 2)}
        assert not broker.queue.waiting
        start_pull(peer, request(2, opaque=99, hold=LONG))
        await held(broker, peer)
        await broker.put(b"last", tag="A")
        assert bodies(await peer.receive()) == [b"last"]

    serve(tmp_path, script)


def test_filters_of_suspended_pulls_are_counted_by_their_memory(tmp_path: Path) -> None:
    """A hostile client has many long ones; an honest one waits at many queues with one."""
    count = 4

    def text(number: int) -> str:
        return " OR ".join(["a=1"] * 700) + f" OR b={number}"

    async def script(broker: PullBroker, peer: Peer) -> None:
        (channel,) = broker.listener.channels

        def waiting(opaque: int, expression: str) -> Command:
            read_filter(expression)
            return request(0, opaque=opaque, tags=expression, hold=LONG, expressionType="SQL92")

        start_pull(peer, waiting(0, text(-1)))  # lark is imported
        await held(broker, peer)
        before = channel.memory
        gc.collect()
        tracemalloc.start()
        for number in range(count):
            start_pull(peer, waiting(number, text(number)))
        await held(broker, peer)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        counted = channel.memory - before
        assert counted > 0.9 * taken > count * len(text(0)) * 100
        for number in range(count):
            start_pull(peer, waiting(100 + number, "a > 1"))
        await held(broker, peer)
        assert channel.memory - before - counted < count * 4096
        for pull_held in list(held_pulls(channel)):
            pull_held.drop()
        assert channel.kept == {}

    serve(tmp_path, script, enablePropertyFilter="true")
