"""Pops of messages, messages that become visible again or not, and refused pops."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import StoredMessage, decode_records
from tests import answered
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.pop.consumers import (
    GROUP,
    POLL,
    RETRY,
    TOPIC,
    PopConsumer,
    bodies,
    fill,
    run,
)
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until


@answered.by_broker(RequestCode.ACK_MESSAGE)
def test_each_message_is_popped_once_and_an_acknowledged_one_never_again(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 10, queues=3)
        first = await consumer.pop(maxMsgNums="4")
        rest = await consumer.pop()
        assert bodies(first + rest) == [b"%d" % number for number in range(10)]
        assert await consumer.pop() == []
        for popped in first + rest:
            assert (await consumer.ack(popped)).code == ResponseCode.SUCCESS
        assert len(broker.services.pop.points) == 0
        assert broker.services.pop.revival.revived == 0

    run(tmp_path, script)


@answered.by_broker(RequestCode.POP_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)
def test_a_message_not_acknowledged_in_time_is_in_the_retry_topic(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 3)
        with stopped_time():
            popped = await consumer.pop(invisibleTime="300")
            assert bodies(popped) == [b"0", b"1", b"2"]
            assert (await consumer.ack(popped[1])).code == ResponseCode.SUCCESS
        again = await consumer.pop(**POLL)
        if len(again) < 2:
            again += await consumer.pop(**POLL)
        assert bodies(again) == [b"0", b"2"]
        for one in again:
            assert one.topic == RETRY
            assert (one.message.topic, one.message.reconsume_times) == (TOPIC, 1)
            assert one.message.properties["1ST_POP_TIME"] == popped[0].receipt.split(" ")[1]
            assert one.message.properties["TAGS"] == "a"
        assert broker.services.pop.revival.revived == 2
        assert (await consumer.ack_all(again)).code == ResponseCode.SUCCESS
        assert len(broker.services.pop.points) == 0

    run(tmp_path, script)


def test_only_messages_that_match_the_filter_are_popped_and_others_skipped(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        for number in range(20):
            tag = "b" if number % 5 == 3 else "a"
            await send(peer, TOPIC, b"%d" % number, 0, f"TAGS\x01{tag}\x02n\x01{number}")
        popped = await consumer.pop(exp="b", expType="TAG")
        assert [one.offset for one in popped] == [3, 8, 13, 18]
        assert (await consumer.ack_all(popped[1:])).code == ResponseCode.SUCCESS
        assert (await consumer.ack(popped[0])).code == ResponseCode.SUCCESS
        assert await consumer.pop(exp="b", expType="TAG") == []
        assert len(broker.services.pop.points) == 0
        by_number = PopConsumer(peer, broker, "Numbers")
        popped = await by_number.pop(exp="n > 17", expType="SQL92")
        assert [one.offset for one in popped] == [18, 19]
        reply = await consumer.ask(exp="n >", expType="SQL92")
        assert reply.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    run(tmp_path, script, enablePropertyFilter="true")


def test_a_new_group_can_start_with_the_last_message(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 5)
        # The queue still begins at 0 in memory: such a group gets everything (getInitOffset).
        assert len(await consumer.pop(initMode="1")) == 5
        broker.stores.messages.queue(TOPIC, 0).minimum = 2
        late = PopConsumer(peer, broker, "Late")
        assert bodies(await late.pop(initMode="1")) == [b"4"]
        assert bodies(await PopConsumer(peer, broker, "All").pop()) == [b"2", b"3", b"4"]

    run(tmp_path, script)


@answered.by_broker(RequestCode.POP_ROLLBACK)
def test_popped_messages_cannot_be_exported(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await send(peer, TOPIC, b"one")
        await consumer.pop()
        reply = await peer.ask(RequestCode.POP_ROLLBACK)
        assert (reply.code, bytes(reply.body)) == (ResponseCode.SUCCESS, b"")
        again = await consumer.ask()
        assert again.code == ResponseCode.POLLING_TIMEOUT  # that does not deliver it twice

    run(tmp_path, script)


@answered.by_broker(RequestCode.PEEK_MESSAGE)
def test_a_peek_consumes_nothing(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 3)
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "2"}
        for _ in range(2):
            reply = await peer.ask(RequestCode.PEEK_MESSAGE, fields)
            assert reply.code == ResponseCode.SUCCESS
            assert [m.body for m in decode_records(reply.body)] == [b"0", b"1"]
            assert reply.fields["restNum"] == "3"
        assert len(await consumer.pop()) == 3
        reply = await peer.ask(RequestCode.PEEK_MESSAGE, fields)
        assert reply.code == ResponseCode.PULL_NOT_FOUND

    run(tmp_path, script)


@answered.by_broker(RequestCode.NOTIFICATION)
def test_a_notification_is_answered_once_a_message_can_be_popped(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "bornTime": "0"}

        async def has_message(milliseconds: int) -> str:
            polled = {**fields, "pollTime": str(milliseconds)}
            return (await peer.ask(RequestCode.NOTIFICATION, polled)).fields["hasMsg"]

        assert await has_message(0) == "false"
        assert await has_message(20) == "false"
        waiting = asyncio.create_task(has_message(20_000))
        async with Peer(broker.port) as other:
            await send(other, TOPIC, b"x")
            assert await waiting == "true"
        assert len(await consumer.pop(invisibleTime="200")) == 1
        assert await has_message(20_000) == "true"  # a retry counts

    run(tmp_path, script)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_after_a_restart_only_unacknowledged_messages_are_delivered(
    tmp_path: Path, flush: str
) -> None:
    async def before(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 6)
        with stopped_time():
            popped = await consumer.pop(maxMsgNums="4", invisibleTime="1000")
            for one in popped[:3]:
                assert (await consumer.ack(one)).code == ResponseCode.SUCCESS

    async def after(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        got = await consumer.pop()
        while len(got) < 3:
            got += await consumer.pop(**POLL)
        assert bodies(got) == [b"3", b"4", b"5"]
        assert await consumer.pop(pollTime="300") == []

    run(tmp_path, before, flushDiskType=flush)
    run(tmp_path, after, flushDiskType=flush)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "Nowhere"),
        ({"maxMsgNums": "33"}, ResponseCode.INVALID_PARAMETER, "expected 1 to 32"),
        ({"maxMsgNums": "0"}, ResponseCode.INVALID_PARAMETER, "expected 1 to 32"),
        ({"invisibleTime": "0"}, ResponseCode.INVALID_PARAMETER, "invisibleTime=0"),
        ({"queueId": "9"}, ResponseCode.INVALID_PARAMETER, "queueId[9] is illegal"),
        ({"consumerGroup": "no!"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no!"),
        ({"consumerGroup": "g" * 120}, ResponseCode.INVALID_PARAMETER, "too long to pop"),
        ({"topic": ""}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"attemptId": "a" * 256}, ResponseCode.INVALID_PARAMETER, "attemptId of 256 characters"),
    ],
)
def test_an_invalid_pop_is_refused_with_its_cause(
    tmp_path: Path, fields: dict[str, str], code: ResponseCode, text: str
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        reply = await consumer.ask(**fields)
        assert reply.code == code, reply
        assert text in (reply.remark or "")

    run(tmp_path, script)


def test_clients_cannot_send_to_the_revive_topic(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        await consumer.pop()
        header = {
            "a": "P",
            "b": broker.services.pop.points.topic,
            "c": "TBW102",
            "d": "8",
            "e": "0",
        }
        header |= {"f": "0", "g": "7", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
        reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, header, b"{}")
        assert reply.code == ResponseCode.NO_PERMISSION

    run(tmp_path, script)


def test_messages_skipped_while_check_points_are_stored_are_committed_with_them(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        for _ in range(9 * 800 + 400):  # more than two pops read
            broker.delivery.writer.put(StoredMessage(TOPIC, b"", {"TAGS": "b"}))
        broker.delivery.writer.put(StoredMessage(TOPIC, b"1", {"TAGS": "a"}))
        broker.stores.messages.appender.commit()
        header = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "initMode": "0"}
        header |= {"maxMsgNums": "1", "invisibleTime": "60000", "pollTime": "0", "bornTime": "0"}
        header |= {"exp": "a", "expType": "TAG"}
        pops = [Command(RequestCode.POP_MESSAGE, header, opaque=n + 100) for n in range(3)]
        # Read in one iteration of the loop: none is stored before the next pop.
        peer.writer.write(b"".join(map(encode, pops)))
        replies = sorted([await peer.receive() for _ in pops], key=lambda reply: reply.opaque)
        found = [[m.body for m in decode_records(reply.body)] for reply in replies]
        assert found == [[b"0"], [], [b"1"]]
        end = broker.stores.messages.max_offset(TOPIC, 0)
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == end
        assert await consumer.pop(exp="a", expType="TAG") == []

    run(tmp_path, script)


@pytest.mark.parametrize("waits_for", ["its check point", "the file of its group"])
def test_a_pop_that_waits_for_the_disk_counts_as_memory_of_its_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    """Thousands of one connection, each of another group, were in memory without being counted."""
    body, more = bytes(1_000_000), {"more": "x" * 1_000_000}

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        flusher, groups = broker.stores.messages.flusher, broker.stores.groups
        popping = Command(RequestCode.POP_MESSAGE, {**consumer.header(), **more}, body, opaque=7)
        with monkeypatch.context() as slow_disk:
            slow_disk.setattr(flusher, "start", lambda: None)
            (channel,) = broker.listener.channels
            if waits_for == "its check point":
                groups.find(GROUP)
                await groups.file.settle()
                peer.writer.write(encode(popping))
                await until(lambda: bool(flusher._waiting))
                assert channel.memory >= len(body) + len(more["more"])
            else:
                async with groups.file._saving:
                    peer.writer.write(encode(popping))
                    await until(lambda: GROUP in groups.table)
                    assert channel.memory >= len(body) + len(more["more"])
                await until(lambda: bool(flusher._waiting))
        flusher.start()
        assert (await peer.receive()).code == ResponseCode.SUCCESS
        await until(lambda: channel.memory == 0)

    run(tmp_path, script, flushDiskType="SYNC_FLUSH")
