"""Pops that wait: who is given what comes, once, and how a wait ends."""

import asyncio
import errno
import time
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import taking, waiters
from mq.daemons.broker.pop.request import PopRequest
from mq.daemons.broker.reading import message_finder
from mq.daemons.broker.store.residency import NotInMemory
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import decode_records
from tests import answered
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.pop.consumers import GROUP, POLL, TOPIC, PopConsumer, bodies, fill, run
from tests.daemons.broker.pop.deletions import DELETIONS
from tests.daemons.broker.pop.refused_writes import refuse_one
from tests.daemons.broker.pop.small_files import SMALL, leave_room
from tests.daemons.broker.running import now
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until

PULL = {"consumerGroup": "P", "topic": "Large", "queueId": "0", "queueOffset": "0"}
PULL |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
PULL |= {"subscription": "*", "subVersion": "0"}
QUESTION = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}


async def until_waiting(peer: Peer, count: int, queue_id: int = -1) -> None:
    """Return once the broker says that so many pops wait for a queue, or for any."""

    async def so_many() -> bool:
        fields = {**QUESTION, "queueId": str(queue_id)}
        reply = await peer.ask(RequestCode.POLLING_INFO, fields)
        return reply.fields["pollingNum"] == str(count)

    await until(so_many)


async def held_before_the_end_of_a_file(
    broker: Broker, peer: Peer, consumer: PopConsumer, other: Peer
) -> None:
    """A pop of `other` waits, opaque 7; the log's file has room for one message and no more."""
    log = broker.stores.messages.log
    before = log.position
    await send(peer, TOPIC, b"2", 0)
    size = log.position - before
    await consumer.pop()  # what is there is out
    fields = consumer.header(pollTime="60000", bornTime=str(now()))
    other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=7)))
    await until_waiting(peer, 1)
    await leave_room(peer, broker, size + 40)


def put_and_do_not_store(broker: Broker) -> None:
    """As a send that came earlier in this turn of the loop."""
    messages = broker.stores.messages
    host = bytes((127, 0, 0, 1, 0, 0, 0, 9))
    messages.appender.append(
        messages.queue(TOPIC, 0),
        b"3",
        b"\0\0",  # no properties
        flag=0,
        sys_flag=0,
        born_timestamp=now(),
        born_host=host,
    )


def test_a_pop_whose_check_point_begins_a_file_is_answered_once(tmp_path: Path) -> None:
    """That stores what was put before it, and wakes the pop in the middle of its answer."""

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


def test_a_pop_that_waits_for_a_group_that_is_deleted_is_given_nothing_of_what_comes(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        async with Peer(broker.port) as other:
            await fill(peer, 2)
            await held_before_the_end_of_a_file(broker, peer, consumer, other)
            offsets = broker.stores.offsets
            offsets.on_group_removed.insert(0, lambda group: put_and_do_not_store(broker))
            code = RequestCode.DELETE_SUBSCRIPTIONGROUP
            assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
            assert (await other.receive()).code == ResponseCode.POLLING_TIMEOUT
            assert offsets.query(GROUP, TOPIC, 0) == -1
            assert len(broker.services.pop.points) == 0

    run(tmp_path, script, **SMALL)


@answered.by_broker(RequestCode.POLLING_INFO)
def test_a_pop_waits_for_a_message_and_the_first_that_waits_gets_it(tmp_path: Path) -> None:
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


def test_a_pop_that_waits_for_one_queue_gets_what_comes_there_behind_one_for_another_queue(
    tmp_path: Path,
) -> None:
    """Where the first had nothing left to get, nobody else was asked."""

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


def test_who_waits_is_asked_though_one_before_it_has_a_queue_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody behind it was, and where that came in a look for more, nobody ever again."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            first = asyncio.create_task(PopConsumer(second, broker).ask(initMode="1", **POLL))
            await until_waiting(peer, 1)
            waiting = PopConsumer(third, broker).pop(queueId="0", **POLL)
            other = asyncio.create_task(waiting)
            await until_waiting(peer, 1, 0)
            # The offset goes that tells where the group begins.
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


def test_a_pop_that_waits_goes_on_looking_behind_many_messages_that_are_not_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the next message that came, or for its end."""
    monkeypatch.setattr(taking, "_MOST_LOOKS", 1)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 900, tag="other")
        await send(peer, TOPIC, b"mine", 0, "TAGS\x01mine")
        assert bodies(await consumer.pop(exp="mine", expType="TAG", **POLL)) == [b"mine"]

    run(tmp_path, script)


@pytest.mark.parametrize("what", ["consumerGroup", "queueId"])
def test_very_many_that_go_on_looking_do_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Else all groups, or those of one that wait for different queues, would look in one turn of
    the loop, for as long as that takes: for a hundred queues 0.24 s. And with each message again:
    fifty groups took 0.08 s of each."""
    monkeypatch.setattr(taking, "_MOST_LOOKS", 1)
    monkeypatch.setattr(waiters, "STEP_SECONDS", 0.0)
    monkeypatch.setattr(waiters, "_SOON", 0.5)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 3 * 801, queues=3, tag="other")
        for queue_id in range(3):
            await send(peer, TOPIC, b"mine", queue_id, "TAGS\x01mine")
        pops, held = broker.services.pop._pop._pops, broker.services.pop._pop._waiters
        take = pops.take
        in_turn: list[int] = []

        def counted(*given: object) -> object:
            in_turn[-1] += 1
            return take(*given)  # type: ignore[arg-type]

        def turn() -> None:
            in_turn.append(0)
            asyncio.get_running_loop().call_soon(turn)

        async with Peer(broker.port) as other:
            for number in range(3):
                fields = consumer.header(queueId="0", exp="mine", expType="TAG", **POLL)
                fields[what] = str(number)
                other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=number)))
            await until(lambda: len(held._behind) == 3)
            turn()
            monkeypatch.setattr(pops, "take", counted)
            await send(peer, TOPIC, b"not theirs", 0)
            for _ in range(3):
                assert (await other.receive()).code == ResponseCode.SUCCESS
            assert (sum(in_turn), max(in_turn)) == (3, 1)

    run(tmp_path, script)


def test_very_many_that_each_find_something_behind_much_that_is_not_for_them_do_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred pops of one group looked for 0.27 s in one turn of the loop, one after another."""
    monkeypatch.setattr(message_finder, "MOST_SCANNED", 4)
    monkeypatch.setattr(waiters, "STEP_SECONDS", 0.0)

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 0)
        pops, offsets = broker.services.pop._pop._pops, broker.stores.offsets
        take = pops.take
        in_turn: list[int] = []

        def counted(*given: object) -> object:
            in_turn[-1] += 1
            return take(*given)  # type: ignore[arg-type]

        def turn() -> None:
            in_turn.append(0)
            asyncio.get_running_loop().call_soon(turn)

        for _ in range(3):
            for _ in range(9):
                await send(peer, TOPIC, b"other", 0)
            await send(peer, TOPIC, b"mine", 0, "TAGS\x01mine")
        offsets.commit(GROUP, TOPIC, 0, broker.stores.messages.end_offset(TOPIC, 0))
        async with Peer(broker.port) as other:
            for number in range(3):
                fields = consumer.header(exp="mine", expType="TAG", maxMsgNums="1", **POLL)
                other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=number)))
            await until_waiting(peer, 3)
            offsets.commit(GROUP, TOPIC, 0, 0)
            turn()
            monkeypatch.setattr(pops, "take", counted)
            await send(peer, TOPIC, b"not theirs", 0)
            for _ in range(3):
                assert (await other.receive()).code == ResponseCode.SUCCESS
            assert max(in_turn) == 1

    run(tmp_path, script)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_is_out_in_order_comes_again_to_one_that_waits_though_another_queue_was_free_before(
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


def test_a_queue_that_is_free_by_the_time_a_pop_waits_for_that_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was out when the pop looked for something, and not when it asked for how long: nothing
    woke the pop."""

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


def test_very_many_that_wait_in_order_are_not_asked_as_often_as_they_are_when_their_queue_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had all of them asked again, and for seconds nobody else was served."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        in_order = {"order": "true", "queueId": "0", **POLL}
        await fill(peer, 1)
        await consumer.pop(order="true", invisibleTime="1000")
        pops = broker.services.pop._pop._pops
        asked = 0
        async with Peer(broker.port) as other:
            for number in range(100):
                fields = PopConsumer(other, broker).header(**in_order)
                other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=number)))
            await until_waiting(peer, 100, 0)
            take = pops.take

            def counted(*given: object) -> object:
                nonlocal asked
                asked += 1
                return take(*given)  # type: ignore[arg-type]

            monkeypatch.setattr(pops, "take", counted)
            reply = await other.receive()
            assert (reply.opaque, reply.code) == (0, ResponseCode.SUCCESS)
            assert (await peer.ask(RequestCode.POLLING_INFO, QUESTION)).code == ResponseCode.SUCCESS
            assert asked < 300

    run(tmp_path, script)


def test_those_that_wait_for_a_queue_that_is_out_in_order_are_not_all_asked_with_each_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand, each message took 0.07 s of the loop. The attempt that has it out is."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        in_order = {"order": "true", **POLL}
        await fill(peer, 0)
        pops = broker.services.pop._pop._pops
        take = pops.take
        asked = 0

        def counted(*given: object) -> object:
            nonlocal asked
            asked += 1
            return take(*given)  # type: ignore[arg-type]

        async with Peer(broker.port) as other:

            def ask(code: RequestCode, opaque: int, attempt: str) -> None:
                fields = consumer.header(attemptId=attempt, **in_order)
                other.writer.write(encode(Command(code, fields, opaque=opaque)))

            ask(RequestCode.POP_MESSAGE, 0, "one")
            for number in range(1, 101):
                ask(RequestCode.POP_MESSAGE, number, f"other-{number}")
            ask(RequestCode.POP_MESSAGE, 101, "one")
            ask(RequestCode.NOTIFICATION, 102, "one")
            await until_waiting(peer, 103)
            monkeypatch.setattr(pops, "take", counted)
            await send(peer, TOPIC, b"first", 0)
            replies = [await other.receive() for _ in range(3)]
            assert sorted(reply.opaque for reply in replies) == [0, 101, 102]
            asked = 0
            await send(peer, TOPIC, b"second", 0)
            await until_waiting(peer, 100)
            assert asked == 1

    run(tmp_path, script)


def test_a_pop_that_waits_while_its_topic_is_made_again_gets_what_comes_there(
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


def test_a_pop_that_waits_gets_what_is_in_a_queue_that_its_topic_gets(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("offsets", ["true", "false"])
def test_the_waits_of_a_group_end_empty_when_it_is_deleted(tmp_path: Path, offsets: str) -> None:
    """What came was taken by a pop whose group was not there: it never came again."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 0)
        lines = broker.services.pop._pop._waiters._lines
        async with Peer(broker.port) as second, Peer(broker.port) as third:
            waits = {"pollTime": "3600000", "bornTime": str(time.time_ns() // 10**6)}
            held = asyncio.create_task(PopConsumer(second, broker).ask(**waits))
            other = asyncio.create_task(PopConsumer(third, broker, "other").ask(**waits))
            await until(lambda: len(lines) == 2)
            fields = {"groupName": GROUP, "removeOffset": offsets}
            reply = await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
            assert reply.code == ResponseCode.SUCCESS
            assert (await held).code == ResponseCode.POLLING_TIMEOUT
            await send(peer, TOPIC, b"new")
            assert (await other).code == ResponseCode.SUCCESS
        assert bodies(await consumer.pop()) == [b"new"]

    run(tmp_path, script)


def test_a_pop_whose_group_is_deleted_while_it_waits_for_the_disk_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        pop = broker.services.pop._pop
        take = pop._pops.take
        is_asked, goes_on = asyncio.Event(), asyncio.Event()

        def absent(*_: object) -> None:
            raise NotInMemory([0])

        async def read_late(_: NotInMemory) -> None:
            monkeypatch.setattr(pop._pops, "take", take)
            is_asked.set()
            await goes_on.wait()

        monkeypatch.setattr(pop._pops, "take", absent)
        monkeypatch.setattr(pop._reader.residency, "bring_in", read_late)
        async with Peer(broker.port) as second:
            late = asyncio.create_task(PopConsumer(second, broker).ask())
            await is_asked.wait()
            fields = {"groupName": GROUP}
            await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
            goes_on.set()
            assert (await late).code == ResponseCode.POLLING_TIMEOUT
        assert not len(broker.services.pop.points)
        assert bodies(await consumer.pop()) == [b"0"]

    run(tmp_path, script)


def test_a_pop_that_waits_gets_what_another_had_taken_whose_check_point_is_refused(
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


def test_a_wait_ends_empty_and_too_many_that_wait_are_told(tmp_path: Path) -> None:
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


def test_a_pop_of_a_peer_that_did_not_read_for_a_while_is_answered_when_it_does(
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


def test_a_pop_that_waits_keeps_no_more_of_its_request_than_it_needs(tmp_path: Path) -> None:
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
