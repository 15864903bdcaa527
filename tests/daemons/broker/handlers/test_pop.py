"""Messages that are popped, acknowledged or not, and come again."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.residency import NotInMemory
from mq.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import StoredMessage, decode_records
from tests import answered
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.pop.consumers import GROUP, RETRY, TOPIC, PopConsumer, bodies, fill
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until

POLL = {"pollTime": "20000"}
PULL = {"consumerGroup": "P", "topic": "Large", "queueId": "0", "queueOffset": "0"}
PULL |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
PULL |= {"subscription": "*", "subVersion": "0"}


def run(
    root: Path, script: Callable[[Broker, Peer, PopConsumer], Awaitable[None]], **settings: str
) -> None:
    async def main() -> None:
        async with broker_on(root, **settings) as broker, Peer(broker.port) as peer:
            await script(broker, peer, PopConsumer(peer, broker))

    asyncio.run(main())


@answered.by_broker(RequestCode.ACK_MESSAGE)
def test_each_message_is_popped_once_and_an_acknowledged_one_does_not_come_again(
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
def test_what_is_not_acknowledged_in_time_comes_again_in_the_retry_topic(tmp_path: Path) -> None:
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


def test_an_acknowledgement_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop(invisibleTime="50")
        (again,) = await consumer.pop(**POLL)
        for late in (await consumer.ack(popped), await consumer.hide(popped, 1000)):
            assert late.code == ResponseCode.NO_MESSAGE
            assert "its invisible time is over" in (late.remark or "")
        assert (await consumer.ack(again)).code == ResponseCode.SUCCESS
        assert (await consumer.ack(again)).code == ResponseCode.SUCCESS  # asked twice: well

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
        assert await consumer.pop(pollTime="1500") == []  # the first receipt would be over now
        assert (await consumer.ack(longer)).code == ResponseCode.SUCCESS
        assert len(broker.services.pop.points) == 0

    run(tmp_path, script)


def test_a_message_that_is_hidden_in_the_millisecond_of_its_pop_comes_again(tmp_path: Path) -> None:
    """A check point is named by when its message was popped: the new one needs another name."""

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
    """A client renews what one of its threads has just acknowledged, or hides it twice."""

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


def test_a_message_that_is_hidden_while_the_clock_is_set_back_comes_again(tmp_path: Path) -> None:
    """Its check point must not have the name of one that was acknowledged: twice, as some are."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop()
        pop_time = int(popped.receipt.split(" ")[1])
        broker.services.pop._ack._clock = lambda: pop_time
        first = await consumer.hide(popped, 60_000)
        assert (
            await consumer.ack(popped)
        ).code == ResponseCode.SUCCESS  # late, and not known to be
        popped.receipt = popped.receipt.replace(str(pop_time), first.fields["popTime"])
        second = await consumer.hide(popped, 100)
        assert second.code == ResponseCode.SUCCESS
        assert bodies(await consumer.pop(**POLL)) == [b"0"]

    run(tmp_path, script)


@answered.by_broker(RequestCode.POLLING_INFO)
def test_a_pop_waits_for_a_message_and_the_first_that_waits_gets_it(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 2)
        async with Peer(broker.port) as second_peer:
            second = PopConsumer(second_peer, broker)
            first_pop = asyncio.create_task(consumer.pop(**POLL))
            async with Peer(broker.port) as asking:
                fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}

                async def until(count: int) -> None:
                    async with asyncio.timeout(30):
                        number = ""
                        while number != str(count):
                            reply = await asking.ask(RequestCode.POLLING_INFO, fields)
                            number = reply.fields["pollingNum"]

                await until(1)
                second_pop = asyncio.create_task(second.pop(**POLL))
                await until(2)
                await send(asking, TOPIC, b"one", 1)
                assert bodies(await first_pop) == [b"one"]
                await until(1)
                await send(asking, TOPIC, b"two", 0)
                assert bodies(await second_pop) == [b"two"]
                await until(0)

    run(tmp_path, script)


def test_a_pop_that_waits_while_its_topic_is_made_again_gets_what_comes_there(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        async with Peer(broker.port) as other:
            waiting = asyncio.create_task(PopConsumer(other, broker).pop(**POLL))
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}
            async with asyncio.timeout(30):
                number = "0"
                while number == "0":
                    reply = await peer.ask(RequestCode.POLLING_INFO, fields)
                    number = reply.fields["pollingNum"]
            deleted = await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
            assert deleted.code == ResponseCode.SUCCESS
            await create_topic(peer, TOPIC, 1)
            await send(peer, TOPIC, b"new", 0)
            assert bodies(await waiting) == [b"new"]

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


def test_a_wait_ends_empty_and_too_many_that_wait_are_told(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        async with Peer(broker.port) as other:
            waiting = asyncio.create_task(PopConsumer(other, broker).ask(**POLL))
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}
            async with asyncio.timeout(30):
                number = "0"
                while number == "0":
                    reply = await peer.ask(RequestCode.POLLING_INFO, fields)
                    number = reply.fields["pollingNum"]
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


def test_only_what_fits_the_filter_is_popped_and_the_rest_passed_over(tmp_path: Path) -> None:
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


def test_a_new_group_may_begin_with_the_last_message(tmp_path: Path) -> None:
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
def test_what_is_popped_is_nowhere_to_be_exported_from(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await send(peer, TOPIC, b"one")
        await consumer.pop()
        reply = await peer.ask(RequestCode.POP_ROLLBACK)
        assert (reply.code, bytes(reply.body)) == (ResponseCode.SUCCESS, b"")
        again = await consumer.ask()
        assert again.code == ResponseCode.POLLING_TIMEOUT  # nobody is given it twice for that

    run(tmp_path, script)


@answered.by_broker(RequestCode.PEEK_MESSAGE)
def test_a_peek_takes_nothing(tmp_path: Path) -> None:
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
def test_a_notification_comes_when_there_is_something_to_pop(tmp_path: Path) -> None:
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
def test_after_a_restart_only_what_was_not_acknowledged_comes(tmp_path: Path, flush: str) -> None:
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
def test_a_pop_that_cannot_be_is_refused_with_its_cause(
    tmp_path: Path, fields: dict[str, str], code: ResponseCode, text: str
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await create_topic(peer, TOPIC, 1)
        reply = await consumer.ask(**fields)
        assert reply.code == code, reply
        assert text in (reply.remark or "")

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
def test_a_receipt_that_is_none_is_refused(
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


def test_batches_that_are_none_are_refused(tmp_path: Path) -> None:
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


def test_nobody_may_send_to_the_revive_topic(tmp_path: Path) -> None:
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


def test_what_was_passed_over_while_check_points_are_stored_is_committed_with_them(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        for _ in range(9 * 800 + 400):  # more than two pops look at
            broker.delivery.writer.put(StoredMessage(TOPIC, b"", {"TAGS": "b"}))
        broker.delivery.writer.put(StoredMessage(TOPIC, b"1", {"TAGS": "a"}))
        broker.stores.messages.appender.commit()
        header = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "initMode": "0"}
        header |= {"maxMsgNums": "1", "invisibleTime": "60000", "pollTime": "0", "bornTime": "0"}
        header |= {"exp": "a", "expType": "TAG"}
        pops = [Command(RequestCode.POP_MESSAGE, header, opaque=n + 100) for n in range(3)]
        # Read in one turn of the loop: none is stored before the next one pops.
        peer.writer.write(b"".join(map(encode, pops)))
        replies = sorted([await peer.receive() for _ in pops], key=lambda reply: reply.opaque)
        found = [[m.body for m in decode_records(reply.body)] for reply in replies]
        assert found == [[b"0"], [], [b"1"]]
        end = broker.stores.messages.max_offset(TOPIC, 0)
        assert broker.stores.offsets.query(GROUP, TOPIC, 0) == end
        assert await consumer.pop(exp="a", expType="TAG") == []

    run(tmp_path, script)


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


def test_an_acknowledgement_that_waits_for_the_disk_counts_as_memory_of_its_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads a body, or other fields; they are in memory until it is stored."""
    body, more = bytes(1_000_000), {"more": "x" * 1_000_000}

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop()
        flusher = broker.stores.messages.flusher
        with monkeypatch.context() as slow_disk:
            slow_disk.setattr(flusher, "start", lambda: None)
            names = {**consumer._names(popped), **more}
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
def test_an_early_acknowledgement_with_a_name_that_no_pop_has_is_refused(
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
        # One of a store of before is not kept, either.
        points._keep_orphan(key, [0], int(time.time() * 1000) + 60000)
        assert not points.has_known(key)

    run(tmp_path, script)
