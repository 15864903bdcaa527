"""Suspended pops: which of them gets a message, once, and how a wait ends."""

import asyncio
import errno
import time
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import popper
from mq.daemons.broker.pop.request import PopRequest
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import decode_records
from tests import answered
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.pop.consumers import GROUP, POLL, TOPIC, PopConsumer, bodies, fill, run
from tests.daemons.broker.pop.refused_writes import refuse_one
from tests.daemons.broker.pop.small_files import SMALL
from tests.daemons.broker.pop.waiting import (
    QUESTION,
    held_before_the_end_of_a_file,
    put_and_do_not_store,
    until_waiting,
)
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until

PULL = {"consumerGroup": "P", "topic": "Large", "queueId": "0", "queueOffset": "0"}
PULL |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
PULL |= {"subscription": "*", "subVersion": "0"}


def test_a_pop_whose_check_point_starts_a_file_is_answered_once(tmp_path: Path) -> None:
    """It makes the store write earlier records, which wakes the pop in the middle of its own
    answer.
    """

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        async with Peer(broker.port) as other:
            await fill(peer, 2)
            await held_before_the_end_of_a_file(broker, peer, consumer, other)
            broker.stores.offsets.commit(GROUP, TOPIC, 0, 0)
            put_and_do_not_store(broker)
            broker.services.pop._pop._waiters.wake_group(GROUP, TOPIC)
            reply = await other.receive()
            assert [bytes(each.body) for each in decode_records(reply.body)] == [b"0", b"1", b"2"]
            reply = await other.ask(RequestCode.POLLING_INFO, QUESTION)  # what comes next
            assert (reply.opaque != 7, reply.fields["pollingNum"]) == (True, "0")

    run(tmp_path, script, **SMALL)


@answered.by_broker(RequestCode.POLLING_INFO)
def test_the_first_suspended_pop_gets_the_message(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 2)
        async with Peer(broker.port) as second_peer:
            second = PopConsumer(second_peer, broker)
            first_pop = asyncio.create_task(consumer.pop(**POLL))
            async with Peer(broker.port) as asking:
                await until_waiting(asking, 1)
                second_pop = asyncio.create_task(second.pop(**POLL))
                await until_waiting(asking, 2)
                await send(asking, TOPIC, b"one", 1)
                assert bodies(await first_pop) == [b"one"]
                await until_waiting(asking, 1)
                await send(asking, TOPIC, b"two", 0)
                assert bodies(await second_pop) == [b"two"]
                await until_waiting(asking, 0)

    run(tmp_path, script)


def test_a_suspended_pop_for_one_queue_is_not_blocked_by_one_for_another(
    tmp_path: Path,
) -> None:
    """If the first had nothing left to get, no other pop was served."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 2)
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            first = asyncio.create_task(PopConsumer(second, broker).pop(queueId="0", **POLL))
            await until_waiting(peer, 1, 0)
            other = asyncio.create_task(PopConsumer(third, broker).pop(queueId="1", **POLL))
            await until_waiting(peer, 1, 1)
            await send(peer, TOPIC, b"one", 1)
            assert bodies(await other) == [b"one"]
            await send(peer, TOPIC, b"zero", 0)
            assert bodies(await first) == [b"zero"]

    run(tmp_path, script)


def test_a_suspended_pop_is_served_although_an_earlier_one_has_an_unreadable_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pop after it was, and during a search for more none ever again."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            first = asyncio.create_task(PopConsumer(second, broker).ask(initMode="1", **POLL))
            await until_waiting(peer, 1)
            waiting = PopConsumer(third, broker).pop(queueId="0", **POLL)
            other = asyncio.create_task(waiting)
            await until_waiting(peer, 1, 0)
            # Delete the offset at which the group starts.
            await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
            await create_topic(peer, TOPIC, 1)

            def unreadable(*_: object) -> None:
                raise OSError(errno.EIO, "Input/output error")

            with monkeypatch.context() as failing:
                failing.setattr(broker.services.pop._pop._reader, "is_young", unreadable)
                await send(peer, TOPIC, b"new", 0)
                assert (await first).code == ResponseCode.SYSTEM_ERROR
            assert bodies(await other) == [b"new"]

    run(tmp_path, script)


def test_a_suspended_pop_continues_its_search_past_many_other_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the next message to arrive, or for its end."""
    monkeypatch.setattr(popper, "_MAX_SCANS", 1)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 900, tag="other")
        await send(peer, TOPIC, b"mine", 0, "TAGS\x01mine")
        assert bodies(await consumer.pop(exp="mine", expType="TAG", **POLL)) == [b"mine"]

    run(tmp_path, script)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_suspended_ordered_pop_gets_messages_again_although_another_queue_was_free_before(
    tmp_path: Path, acknowledged: bool
) -> None:
    """It was woken for the first of them alone."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        in_order = {"order": "true", "maxMsgNums": "1"}
        await fill(peer, 2, queues=2)
        (first,) = await consumer.pop(queueId="0", invisibleTime="300", **in_order)
        await consumer.pop(queueId="1", invisibleTime="600", **in_order)
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            waiting = asyncio.create_task(PopConsumer(second, broker).pop(**in_order, **POLL))
            await until_waiting(peer, 1)
            if acknowledged:
                await consumer.ack(first)
            else:
                other = asyncio.create_task(PopConsumer(third, broker).pop(**in_order, **POLL))
                await until_waiting(peer, 2)
                assert bodies(await waiting) == [b"0"]
                waiting = other
            assert bodies(await waiting) == [b"1"]

    run(tmp_path, script)


def test_a_queue_unblocked_before_a_pop_waits_for_it_is_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was blocked when the pop searched, and not when it asked for how long: nothing woke the
    pop.
    """

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        pops = broker.services.pop._pop._pops
        look = pops.has_something
        with stopped_time() as clock:
            await consumer.pop(order="true", invisibleTime="1000")
            clock.advance(999)

            def slowly(request: PopRequest) -> bool:
                found = look(request)
                clock.advance(1)
                return found

            monkeypatch.setattr(pops, "has_something", slowly)
            waits = {**POLL, "bornTime": str(clock.now)}
            assert bodies(await consumer.pop(order="true", **waits)) == [b"0"]

    run(tmp_path, script)


def test_a_suspended_pop_gets_messages_of_its_recreated_topic(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        async with Peer(broker.port) as other:
            waiting = asyncio.create_task(PopConsumer(other, broker).pop(**POLL))
            await until_waiting(peer, 1)
            deleted = await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
            assert deleted.code == ResponseCode.SUCCESS
            await create_topic(peer, TOPIC, 1)
            await send(peer, TOPIC, b"new", 0)
            assert bodies(await waiting) == [b"new"]

    run(tmp_path, script)


def test_a_suspended_pop_gets_messages_of_an_added_queue(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        header = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1"}
        header |= {"writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        assert (await peer.ask(code, header)).code == ResponseCode.SUCCESS
        await send(peer, TOPIC, b"there", 1)
        async with Peer(broker.port) as other:
            waiting = asyncio.create_task(PopConsumer(other, broker).pop(**POLL))
            await until_waiting(peer, 1)
            reply = await peer.ask(code, {**header, "readQueueNums": "2"})
            assert reply.code == ResponseCode.SUCCESS
            assert bodies(await waiting) == [b"there"]

    run(tmp_path, script)


def test_a_suspended_pop_gets_messages_of_another_whose_check_point_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            first = asyncio.create_task(PopConsumer(second, broker).ask(**POLL))
            await until_waiting(peer, 1)
            waiting = asyncio.create_task(PopConsumer(third, broker).pop(**POLL))
            await until_waiting(peer, 2)
            with monkeypatch.context() as failing:
                refuse_one(failing, b"TAGS\x01ck")
                await send(peer, TOPIC, b"x", 0)
                assert (await first).code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert bodies(await waiting) == [b"x"]

    run(tmp_path, script)


def test_a_wait_ends_empty_and_too_many_waiting_pops_are_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        async with Peer(broker.port) as other:
            waiting = asyncio.create_task(PopConsumer(other, broker).ask(**POLL))
            await until_waiting(peer, 1)
            reply = await consumer.ask(pollTime="700")
            assert reply.code == ResponseCode.POLLING_FULL
            await send(peer, TOPIC, b"x", 0)
            assert (await waiting).code == ResponseCode.SUCCESS
            reply = await consumer.ask(pollTime="100")
            assert reply.code == ResponseCode.POLLING_TIMEOUT
            assert reply.remark == "NO_MESSAGE_IN_QUEUE"
            born = str(time.time_ns() // 1_000_000 - 60_000)
            reply = await consumer.ask(bornTime=born, pollTime="1000")
            assert reply.code == ResponseCode.POLLING_TIMEOUT
            assert "timeout too much" in (reply.remark or "")

    run(tmp_path, script, popPollingSize="1")


def test_a_pop_of_a_stalled_peer_is_answered_when_it_reads_again(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 0)
        await create_topic(peer, "Large", 1)
        for _ in range(4):
            await send(peer, "Large", bytes(1_000_000))
        async with Peer(broker.port) as slow:
            popping = Command(RequestCode.POP_MESSAGE, consumer.header(pollTime="60000"), opaque=99)
            slow.writer.write(encode(popping))
            await until(lambda: any("held pops" in c.kept for c in broker.listener.channels))
            channel = next(c for c in broker.listener.channels if "held pops" in c.kept)
            for number in range(20):
                slow.writer.write(encode(Command(RequestCode.PULL_MESSAGE, PULL, opaque=number)))
            await until(lambda: channel.stalled)
            await send(peer, TOPIC, b"while it does not read")
            replies = [await slow.receive() for _ in range(21)]
            popped = next(reply for reply in replies if reply.opaque == 99)
            assert popped.code == ResponseCode.SUCCESS
            assert len(channel.attributes["held pops"]) == 0

    run(tmp_path, script)


def test_a_suspended_pop_keeps_only_the_needed_part_of_its_request(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 0)
        fields = {**consumer.header(pollTime="60000"), "more": "x" * 1_000_000}
        popping = Command(RequestCode.POP_MESSAGE, fields, bytes(1_000_000), remark="r" * 1_000_000)
        async with Peer(broker.port) as waiting:
            waiting.writer.write(encode(popping))
            await until(lambda: any("held pops" in c.kept for c in broker.listener.channels))
            channel = next(c for c in broker.listener.channels if "held pops" in c.kept)
            (held,) = channel.attributes["held pops"]
            kept = held.command
            assert (kept.fields, kept.body, kept.remark) == ({}, b"", None)

    run(tmp_path, script)
