"""Acknowledgements and changes of invisible times: which receipts are valid."""

import asyncio
import base64
import time
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests import answered
from tests.daemons.broker.pop.consumers import GROUP, POLL, TOPIC, PopConsumer, bodies, fill, run
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until


def with_revive_queue(receipt: str, number: int) -> str:
    parts = receipt.split(" ")
    parts[3] = str(number)
    return " ".join(parts)


@pytest.mark.parametrize("number", [8, 1000, 2**31 - 1, -1])
def test_a_nonexistent_revive_queue_is_refused_before_any_write(
    tmp_path: Path, number: int
) -> None:
    """Each of them created a queue on the disk, and a check point in it that delivered the message
    again.
    """

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            (popped,) = await consumer.pop()
            points, log = broker.services.pop.points, broker.stores.messages.log
            before, real = log.position, popped.receipt
            popped.receipt = with_revive_queue(real, number)
            for reply in (await consumer.hide(popped, 3000), await consumer.ack(popped)):
                assert reply.code == ResponseCode.SYSTEM_ERROR
                assert reply.remark == f"revive queue {number} does not exist"
            assert log.position == before
            assert number not in broker.stores.messages.queues_of(points.topic)
            assert not points._fresh
            popped.receipt = real
            assert (await consumer.ack(popped)).code == ResponseCode.SUCCESS

    asyncio.run(script())


def test_acknowledgements_are_written_to_the_revive_queue_of_their_check_point(
    tmp_path: Path,
) -> None:
    """Read before its check point, as an early one, it may be too large to be kept."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 2)
            popped = await consumer.pop()
            points, store = broker.services.pop.points, broker.stores.messages
            (point,) = points._table.values()
            used = point.revive_queue_id
            for one in popped:
                one.receipt = with_revive_queue(one.receipt, (used + 1) % 8)
            hidden = await consumer.hide(popped[0], 60000)
            assert hidden.fields["reviveQid"] == str(used)
            assert (await consumer.ack(popped[1])).code == ResponseCode.SUCCESS
            # The check point, the one that hides, the two acknowledgements.
            assert store.max_offset(points.topic, used) == 4
            ends = [store.max_offset(points.topic, number) for number in range(8)]
            assert [number for number, end in enumerate(ends) if end] == [used]

    asyncio.run(script())


def test_a_late_acknowledgement_is_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop(invisibleTime="50")
        (again,) = await consumer.pop(**POLL)
        for late in (await consumer.ack(popped), await consumer.hide(popped, 1000)):
            assert late.code == ResponseCode.NO_MESSAGE
            assert "its invisible time is over" in (late.remark or "")
        assert (await consumer.ack(again)).code == ResponseCode.SUCCESS
        # a repeated request succeeds
        assert (await consumer.ack(again)).code == ResponseCode.SUCCESS

    run(tmp_path, script)


@answered.by_broker(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
def test_the_invisible_time_can_be_changed_both_ways(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 2)
        with stopped_time():
            longer, shorter = await consumer.pop(invisibleTime="1000")
            reply = await consumer.hide(longer, 60_000)
            assert reply.code == ResponseCode.SUCCESS
            hidden = await consumer.hide(shorter, 0)
            assert hidden.code == ResponseCode.SUCCESS
        assert reply.fields["invisibleTime"] == "60000"
        new = f"{longer.offset} {reply.fields['popTime']} 60000 {reply.fields['reviveQid']} 0 "
        longer.receipt = f"{new}{consumer.broker_name} 0 {longer.offset}"
        (again,) = await consumer.pop(**POLL)
        assert again.body == shorter.body
        assert (await consumer.ack(again)).code == ResponseCode.SUCCESS
        assert await consumer.pop(pollTime="1500") == []  # the first receipt would have expired now
        assert (await consumer.ack(longer)).code == ResponseCode.SUCCESS
        assert len(broker.services.pop.points) == 0

    run(tmp_path, script)


def test_a_message_hidden_in_the_millisecond_of_its_pop_is_delivered_again(tmp_path: Path) -> None:
    """A check point is named by the time of the pop: the new one needs another name."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 12)
        apart = 0
        for _ in range(12):
            (popped,) = await consumer.pop(maxMsgNums="1", invisibleTime="50000")
            reply = await consumer.hide(popped, 100)
            assert reply.code == ResponseCode.SUCCESS
            pop_time = int(popped.receipt.split(" ")[1])
            assert int(reply.fields["popTime"]) > pop_time
            apart += int(reply.fields["popTime"]) - pop_time
        found: list[bytes] = []
        while len(found) < 12:
            again = await consumer.pop(**POLL)
            assert again, f"{len(found)} of 12 came, {apart} ms apart"
            found += bodies(again)
        assert sorted(found) == sorted(b"%d" % number for number in range(12))

    run(tmp_path, script)


@pytest.mark.parametrize("first", ["acknowledge", "hide"])
def test_a_message_is_not_hidden_again_while_its_end_is_being_stored(
    tmp_path: Path, first: str
) -> None:
    """A client renews a message that one of its threads just acknowledged, or hides it twice."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop()
        end = consumer.ack(popped) if first == "acknowledge" else consumer.hide(popped, 50_000)
        async with Peer(broker.port) as other:
            replies = await asyncio.gather(end, PopConsumer(other, broker).hide(popped, 100))
        assert [reply.code for reply in replies] == [ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE]
        assert len(broker.services.pop.points) == (first == "hide")
        assert await consumer.pop(pollTime="700") == []

    run(tmp_path, script)


def test_a_message_hidden_while_the_clock_is_set_back_is_delivered_again(tmp_path: Path) -> None:
    """Its check point must not have the name of one that was acknowledged: repeated, as some."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop()
        pop_time = int(popped.receipt.split(" ")[1])
        broker.services.pop._ack._clock = lambda: pop_time
        first = await consumer.hide(popped, 60_000)
        assert (
            await consumer.ack(popped)
        ).code == ResponseCode.SUCCESS  # late, but that cannot be known
        popped.receipt = popped.receipt.replace(str(pop_time), first.fields["popTime"])
        second = await consumer.hide(popped, 100)
        assert second.code == ResponseCode.SUCCESS
        assert bodies(await consumer.pop(**POLL)) == [b"0"]

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("receipt", "offset", "code"),
    [
        ("", "0", ResponseCode.SYSTEM_ERROR),
        ("a b c d", "0", ResponseCode.SYSTEM_ERROR),
        ("0 1 1 0 0 broker-a 0 0", "0", ResponseCode.NO_MESSAGE),
        ("0 99999999999999 60000 77 0 broker-a 0 0", "0", ResponseCode.SYSTEM_ERROR),
        ("0 9999999999999999999999 60000 0 0 broker-a 0 0", "0", ResponseCode.SYSTEM_ERROR),
        ("0 1 1 0 0 broker-a 0 0", "7", ResponseCode.NO_MESSAGE),
    ],
)
def test_an_invalid_receipt_is_refused(
    tmp_path: Path, receipt: str, offset: str, code: ResponseCode
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        await consumer.pop()
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": offset}
        fields |= {"extraInfo": receipt, "invisibleTime": "1000"}
        for request in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
            reply = await peer.ask(request, fields)
            if "77" in receipt and request == RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
                assert reply.code == ResponseCode.NO_MESSAGE
            else:
                assert reply.code == code, reply
        assert len(broker.services.pop.points) == 1

    run(tmp_path, script)


def test_invalid_batches_are_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        start = '{"brokerName":"broker-a","acks":['
        for body, code in (
            (b"{", ResponseCode.SYSTEM_ERROR),
            (b'{"acks":[]}', ResponseCode.NO_MESSAGE),
            ((start + "{}]}").encode(), ResponseCode.SYSTEM_ERROR),
            ((start + '{"c":"G","t":"Popped","b":"!"}]}').encode(), ResponseCode.SYSTEM_ERROR),
            ((start + '{"c":"G","t":"Gone","b":"AQ=="}]}').encode(), ResponseCode.TOPIC_NOT_EXIST),
            ((start + '{"c":"G","t":"Popped","r":"2"}]}').encode(), ResponseCode.SYSTEM_ERROR),
            ((start + '{"c":"G","t":"Popped","b":"AQ=="}]}').encode(), ResponseCode.NO_MESSAGE),
        ):
            reply = await peer.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)
            assert reply.code == code, (body, reply)

    run(tmp_path, script)


def test_a_batch_of_too_many_acknowledgements_is_refused_before_any_work(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop()
        written = broker.stores.messages.log.written
        one = BatchAck(
            consumer_group=GROUP,
            topic=TOPIC,
            retry="0",
            pop_time=time.time_ns() // 1_000_000,
            invisible_time=60_000,
            bit_set=base64.b64encode(bytes([255] * 512)).decode(),  # 4096 messages
        )
        none = BatchAck(consumer_group=GROUP, topic=TOPIC)
        for acks in ([one, one], [none] * 5000):
            body = BatchAckMessageRequestBody(broker_name="broker-a", acks=acks).encode()
            reply = await peer.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "over 4096 messages" in (reply.remark or "")
        assert broker.stores.messages.log.written == written
        assert (await consumer.ack_all([popped])).code == ResponseCode.SUCCESS

    run(tmp_path, script)


def test_an_acknowledgement_that_waits_for_the_disk_counts_as_memory_of_its_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies and other fields are not read, but in memory until the acknowledgement is stored."""
    body, more = bytes(1_000_000), {"more": "x" * 1_000_000}

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop()
        flusher = broker.stores.messages.flusher
        with monkeypatch.context() as slow_disk:
            slow_disk.setattr(flusher, "start", lambda: None)
            names = {**consumer.names(popped), **more}
            ack = Command(RequestCode.ACK_MESSAGE, names, body, opaque=7)
            peer.writer.write(encode(ack))
            await until(lambda: bool(flusher._waiting))
            (channel,) = broker.listener.channels
            assert channel.memory >= len(body) + len(more["more"])
        flusher.start()
        assert (await peer.receive()).code == ResponseCode.SUCCESS
        assert channel.memory == 0

    run(tmp_path, script, flushDiskType="SYNC_FLUSH")


@pytest.mark.parametrize("name", ["group", "broker"])
def test_an_early_acknowledgement_with_an_invalid_name_is_refused(
    tmp_path: Path, name: str
) -> None:
    """A hundred thousand of them were kept for days, each with a name of megabytes."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        points = broker.services.pop.points
        for length, kept in ((255, 1), (256, 0)):
            group, broker_name = ("g" * length, "b") if name == "group" else ("g", "b" * length)
            receipt = f"{length} {int(time.time() * 1000)} 60000 0 0 {broker_name}"
            fields = {"consumerGroup": group, "topic": TOPIC, "queueId": "0", "offset": "0"}
            reply = await peer.ask(RequestCode.ACK_MESSAGE, fields | {"extraInfo": receipt})
            assert (reply.code == ResponseCode.SUCCESS) == bool(kept)
            key = (TOPIC, group, 0, length, int(receipt.split()[1]), broker_name)
            assert points.has_known(key) == bool(kept)
        # One of an earlier store is not kept either.
        points._keep_orphan(key, [0], int(time.time() * 1000) + 60000)
        assert not points.has_known(key)

    run(tmp_path, script)
