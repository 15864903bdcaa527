"""The position of a group while it pops: each message is delivered once, and redelivered if
needed."""

import asyncio
import base64
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.pop import popper
from mq.daemons.broker.pop.check_points import _MAX_LATER
from mq.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import decode_records
from tests.daemons.broker.harness import send
from tests.daemons.broker.pop.consumers import GROUP, POLL, TOPIC, PopConsumer, bodies, fill
from tests.daemons.broker.pop.deletions import flushes_held_up
from tests.daemons.broker.pop.small_files import SMALL, leave_room
from tests.daemons.broker.running import broker_on, now
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until


def test_two_pops_of_one_place_in_a_millisecond_are_both_redelivered(
    tmp_path: Path,
) -> None:
    """The group was reset in between: of the second pop nothing was redelivered."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 3)
            with stopped_time():
                await consumer.pop(invisibleTime="1", maxMsgNums="1")
                broker.stores.offsets.commit(GROUP, TOPIC, 0, 0)
                second = await consumer.pop(invisibleTime="1")
                assert bodies(second) == [b"0", b"1", b"2"]
                assert len(broker.services.pop.points) == 2
            again: list[bytes] = []
            while len(again) < 4:
                again += bodies(await consumer.pop(pollTime="20000", bornTime=str(now())))
            assert sorted(again) == [b"0", b"0", b"1", b"2"]

    asyncio.run(script())


def test_a_queue_that_needs_a_later_pop_time_is_left_for_the_next_pop(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 2, queues=2)
            with stopped_time():
                await consumer.pop(queueId="1")
                broker.stores.offsets.commit(GROUP, TOPIC, 1, 0)
                got = [*await consumer.pop(), *await consumer.pop()]
                assert bodies(got) == [b"0", b"1"]
            for one in got:
                assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            (left,) = broker.services.pop.points._table.values()
            assert (left.queue_id, left.missing) == (1, [0])

    asyncio.run(script())


async def make_up_acknowledgements(broker: Broker, peer: Peer, first: int, count: int) -> None:
    """Acknowledgements of the first message, as popped at many consecutive times."""
    acks = [
        BatchAck(
            consumer_group=GROUP,
            topic=TOPIC,
            retry="0",
            start_offset=0,
            queue_id=0,
            revive_queue_id=0,
            pop_time=first + later,
            invisible_time=600_000,
            bit_set=base64.b64encode(b"\x01").decode(),
        )
        for later in range(count)
    ]
    name = broker.settings.broker.broker_name
    told = BatchAckMessageRequestBody(broker_name=name, acks=acks)
    reply = await peer.ask(RequestCode.BATCH_ACK_MESSAGE, {}, told.encode())
    assert reply.code == ResponseCode.SUCCESS
    await until(lambda: broker.services.pop.points._orphaned == count)


def test_a_message_is_not_invisible_much_longer_than_requested(tmp_path: Path) -> None:
    """Acknowledgements that a client has made up hid it for as many milliseconds more, 100,000 at
    most, and each such request searched for as long: 0.2 s.
    """

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            with stopped_time() as clock:
                (popped,) = await consumer.pop()
                clock.advance(1)
                await make_up_acknowledgements(broker, peer, clock.now, _MAX_LATER)
                assert (await consumer.hide(popped, 5000)).code == ResponseCode.SYSTEM_ERROR
                clock.advance(1)
                hidden = await consumer.hide(popped, 5000)
                assert hidden.code == ResponseCode.SUCCESS
                assert int(hidden.fields["popTime"]) == clock.now + _MAX_LATER - 1

    asyncio.run(script())


@pytest.mark.parametrize("poll", [{}, POLL])
def test_a_message_that_needs_a_far_later_pop_time_is_left_for_a_later_pop(
    tmp_path: Path, poll: dict[str, str]
) -> None:
    """Acknowledgements that a client has made up hid it for as much longer, and the pop searched
    long. A suspended pop was not served again when the time came.
    """

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            with stopped_time() as clock:
                await make_up_acknowledgements(broker, peer, clock.now, _MAX_LATER + 1)
                popping = asyncio.create_task(consumer.pop(**poll))
                if poll:
                    waiters = broker.services.pop._pop._waiters
                    await until(lambda: waiters.waiting(GROUP, TOPIC, -1) == 1)
                    clock.advance(2)
                    (popped,) = await popping
                else:
                    assert await popping == []
                    clock.advance(2)
                    (popped,) = await consumer.pop()
                assert int(popped.receipt.split(" ")[1]) == clock.now + _MAX_LATER - 1

    asyncio.run(script())


def test_a_pop_woken_while_a_check_point_starts_a_log_file_gets_the_following_messages(
    tmp_path: Path,
) -> None:
    """The check point makes the store write earlier records, which wakes suspended pops: they got
    the same messages.
    """

    async def script() -> None:
        async with (
            broker_on(tmp_path, **SMALL) as broker,
            Peer(broker.port) as peer,
            Peer(broker.port) as other,
        ):
            log, offsets = broker.stores.messages.log, broker.stores.offsets
            consumer = PopConsumer(peer, broker)
            await fill(peer, 2)
            before = log.position
            await send(peer, TOPIC, b"2")
            size = log.position - before
            assert (await consumer.ack_all(await consumer.pop())).code == ResponseCode.SUCCESS
            waits = PopConsumer(other, broker).pop(pollTime="60000", bornTime=str(now()))
            waiting = asyncio.create_task(waits)
            names = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}

            async def waits_there() -> bool:
                reply = await peer.ask(RequestCode.POLLING_INFO, names)
                return reply.fields["pollingNum"] == "1"

            await until(waits_there)
            offsets.commit(GROUP, TOPIC, 0, 0)
            await leave_room(peer, broker, size + 40)  # the message, and no check point
            header = {"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "7"}
            header |= {"h": "0", "j": "0", "k": "false", "m": "false"}
            commands = [
                Command(RequestCode.SEND_MESSAGE_V2, header, b"3", opaque=100),
                Command(RequestCode.POP_MESSAGE, consumer.header(), opaque=101),
            ]
            # In one turn of the event loop: the message is not stored before the pop arrives.
            peer.writer.write(b"".join(map(encode, commands)))
            replies = [await peer.receive() for _ in commands]
            (popped,) = [reply for reply in replies if reply.opaque == 101]
            taken = [message.body for message in decode_records(popped.body)]
            assert taken == [b"0", b"1", b"2"]
            assert bodies(await waiting) == [b"3"]
            assert offsets.query(GROUP, TOPIC, 0) == 4

    asyncio.run(script())


def test_a_message_popped_while_the_disk_is_slow_is_delivered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its check point is in the log. The group was put back, and got it again with each pop that
    received that error.
    """

    async def script() -> None:
        settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "100"}
        async with broker_on(tmp_path, **settings) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 2)
            with flushes_held_up(monkeypatch):
                popped = await consumer.pop(maxMsgNums="1")
                assert bodies(popped) == [b"0"]
                assert bodies(await consumer.pop()) == [b"1"]
                assert await consumer.pop() == []
                assert (await consumer.ack(popped[0])).code == ResponseCode.FLUSH_DISK_TIMEOUT
            points = broker.services.pop.points
            await until(lambda: [point.offsets for point in points._table.values()] == [(1,)])

    asyncio.run(script())


def test_a_message_acknowledged_while_the_disk_is_slow_is_not_redelivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its check point was due when it could be read, and the acknowledgement could not be read
    yet."""

    async def script() -> None:
        settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "1000"}
        async with broker_on(tmp_path, **settings) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            log, pop = broker.stores.messages.log, broker.services.pop
            with flushes_held_up(monkeypatch):
                (popped,) = await consumer.pop(invisibleTime="1000")
                end = log.position
                acknowledged = asyncio.create_task(consumer.ack(popped))
                await until(lambda: log.written > end)
                clock.advance(2000)
            assert (await acknowledged).code == ResponseCode.SUCCESS
            await until(lambda: not len(pop.points))
            assert pop.revival.revived == 0
            assert await consumer.pop() == []

    with stopped_time() as clock:
        asyncio.run(script())


def test_a_pop_of_all_queues_searches_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It searched this long in each queue, and no other client was served: 0.04 s for 16 queues,
    and 0.26 s with a filter by properties.
    """
    monkeypatch.setattr(popper, "TURN_SECONDS", -1.0)

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 3 * 801, queues=3, tag="other")
            await send(peer, TOPIC, b"mine", 1, "TAGS\x01mine")
            reader = broker.services.pop._pop._pops._reader
            find = reader.find
            looks = 0

            def counted(*given: object, **named: object) -> object:
                nonlocal looks
                looks += 1
                return find(*given, **named)  # type: ignore[arg-type]

            monkeypatch.setattr(reader, "find", counted)
            assert await consumer.pop(exp="mine", expType="TAG") == []
            assert looks == 1
            assert bodies(await consumer.pop(exp="mine", expType="TAG", **POLL)) == [b"mine"]

    asyncio.run(script())
