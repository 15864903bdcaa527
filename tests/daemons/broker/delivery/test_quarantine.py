"""Records that the broker itself cannot handle are quarantined, without effects on others."""

import asyncio
import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.delivery import quarantine, waiting
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.store import layout
from mq.protocol import fastjson
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage, decode_record
from mq.protocol.names import REVIVE_TOPIC_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from mq.protocol.properties import MAX_LENGTH, encode
from tests.daemons.broker.harness import send as send_to
from tests.daemons.broker.pop.consumers import RETRY, TOPIC, PopConsumer, bodies, fill
from tests.daemons.broker.running import broker_on, now, pull, send
from tests.daemons.broker.transactions.producers import (
    GIVEN_UP,
    HALF,
    ROLLBACK,
    TransactionPeer,
)
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time


def lines(root: Path) -> list[dict[str, Any]]:
    """The lines of the file."""
    path = root / "config" / quarantine.FILE_NAME
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def waiting_message(topic: str, body: bytes, target: str, queue: str) -> StoredMessage:
    """A record of a waiting message, as in a store of another or an older broker."""
    properties = {"REAL_TOPIC": target, "REAL_QID": queue, "DELAY": "1"}
    if topic == TIMER_TOPIC:
        properties |= {"TIMER_OUT_MS": str(now() // 1000 * 1000)}
        del properties["DELAY"]
    return StoredMessage(topic, body, properties)


BAD_TARGETS = [
    ("Later", "2147483648"),
    ("Later", "9" * 5000),
    ("Later", "-1"),
    ("Later", "one"),
    ("Later", "\N{ARABIC-INDIC DIGIT ONE}"),
    ("Later", ""),
    ("", "0"),
    ("../../etc", "0"),
    ("x" * 200, "0"),
    ("RMQ_SYS_TRANS_HALF_TOPIC", "0"),
    ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "0"),
    (SCHEDULE_TOPIC, "0"),
    (TIMER_TOPIC, "0"),
    (REVIVE_TOPIC_PREFIX + "DefaultCluster", "0"),
    ("rmq_sys_other", "0"),
    ("NotThere", "0"),  # autoCreateTopicEnable=false
]


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, TIMER_TOPIC])
def test_no_stored_record_blocks_the_next_one_or_a_start(tmp_path: Path, topic: str) -> None:
    settings = {"autoCreateTopicEnable": "false"}

    async def before() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"first", {})
        async with broker_on(tmp_path, **settings) as broker, Session("127.0.0.1:1") as session:
            broker.delivery.timer.start(broker.delivery.writer)
            for target, queue in BAD_TARGETS:
                broker.delivery.writer.put(waiting_message(topic, b"bad", target, queue))
            broker.delivery.writer.put(waiting_message(topic, b"good", "Later", "1"))
            found = await pull(session, broker.address, "Later", 2)
            assert [message.body for message in found] == [b"first", b"good"]
            assert broker.stores.aside.counts.total() == len(BAD_TARGETS)
            assert broker.tasks.failures == {}
            assert broker.stores.topics.get("NotThere") is None
            queues = {(q.topic, q.queue_id) for q in broker.stores.messages.queues if q.readable}
            assert queues == {("Later", 1), (topic, 0)}

    async def after() -> None:
        async with broker_on(tmp_path, **settings) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"last", {"TIMER_DELAY_MS": "10"})
            found = await pull(session, broker.address, "Later", 3)
            assert [message.body for message in found] == [b"first", b"good", b"last"]
            assert broker.stores.aside.counts.total() == 0

    asyncio.run(before())
    written = lines(tmp_path)
    assert len(written) == len(BAD_TARGETS)
    assert {line["topic"] for line in written} == {topic}
    for line, (_, queue) in zip(written, BAD_TARGETS, strict=True):
        assert line["why"]
        record = decode_record(base64.b64decode(line["record"]))
        assert (record.body, record.properties.get("REAL_QID", "")) == (b"bad", queue)
    asyncio.run(after())
    assert len(lines(tmp_path)) == len(BAD_TARGETS)


def test_an_unsaved_topic_is_created_again_and_a_missing_queue_is_replaced(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"first", {})
            broker.delivery.writer.put(
                waiting_message(SCHEDULE_TOPIC, b"far", "Later", "2147483645")
            )
            broker.delivery.writer.put(waiting_message(SCHEDULE_TOPIC, b"new", "Unsaved", "3"))
            found = await pull(session, broker.address, "Later", 2)
            assert [message.body for message in found] == [b"first", b"far"]
            topic = broker.stores.topics.get("Unsaved")
            assert topic is not None and topic.read_queue_nums > 3
            assert broker.stores.messages.max_offset("Unsaved", 3) == 1
            assert broker.stores.aside.counts.total() == 0

    asyncio.run(script())


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, TIMER_TOPIC])
@pytest.mark.parametrize("entry", [(0, 0, 0), (0, 0x7FFFFFFF, 0), (1 << 50, 200, 0)])
def test_a_queue_entry_that_points_at_a_wrong_message_is_repaired(
    tmp_path: Path, topic: str, entry: tuple[int, int, int]
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"at 0", {})
            broker.delivery.writer.put(waiting_message(topic, b"waited", "Later", "1"))
            broker.stores.messages.appender.commit()
            broker.stores.messages.queue(topic, 0).mend(0, layout.ENTRY.pack(*entry))
            broker.delivery.timer.start(broker.delivery.writer)
            found = await pull(session, broker.address, "Later", 2)
            assert [message.body for message in found] == [b"at 0", b"waited"]
            assert broker.stores.messages.max_offset("Later", 1) == 2

    asyncio.run(script())


def test_a_message_with_the_highest_consume_count_is_popped_again(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            header = {"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "7"}
            header |= {"h": "0", "j": "2147483647", "k": "false", "m": "false"}
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, header, b"most")
            assert reply.code == ResponseCode.SUCCESS
            assert len(await consumer.pop(invisibleTime="200")) == 2
            again = await consumer.pop(pollTime="10000", bornTime=str(now()), maxMsgNums="32")
            assert bodies(again) == [b"0", b"most"]
            most = [one.message.reconsume_times for one in again if one.body == b"most"]
            assert most == [2147483647]
            assert broker.tasks.failures == {}

    asyncio.run(script())


def full_properties(used: dict[str, str], room: int = 0) -> dict[str, str]:
    """Properties that leave so many bytes in a record after CLUSTER is added."""
    properties = {**used, "own": ""}
    taken = len(encode({**properties, "CLUSTER": "DefaultCluster"}))
    properties["own"] = "x" * (MAX_LENGTH - room - taken)
    return properties


def test_popped_messages_with_full_properties_are_delivered_again_once(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            await send_to(peer, TOPIC, b"full", 0, encode(full_properties({})))
            await send_to(peer, TOPIC, b"2", 0)
            assert len(await consumer.pop(invisibleTime="200")) == 3
            again = await consumer.pop(pollTime="10000", bornTime=str(now()))
            assert bodies(again) == [b"0", b"2", b"full"]
            for one in again:  # also the one whose properties have no room for its receipt
                assert (await consumer.ack(one)).code == ResponseCode.SUCCESS
            await asyncio.sleep(0.4)
            assert broker.stores.messages.max_offset(RETRY, 0) == 3
            assert broker.stores.aside.counts.total() == 0

    asyncio.run(script())


def test_a_timed_message_with_full_properties_is_refused_at_the_send_or_delivered(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            with stopped_time() as stopped:
                due = {"TIMER_DELIVER_MS": str(stopped.now + 1000)}
                properties = full_properties(due)
                reply = await send(session, broker.address, b"full", properties)
                assert reply.code == ResponseCode.MESSAGE_ILLEGAL
                assert "properties" in (reply.remark or "")
                # The largest that is accepted: no room is left for properties that the timer adds.
                for room in range(60, 400):
                    properties = full_properties(due, room)
                    if (await send(session, broker.address, b"full", properties)).code == 0:
                        break
                await send(session, broker.address, b"small", due)
            found = await pull(session, broker.address, "Later", 2)
            assert [message.body for message in found] == [b"full", b"small"]
            assert found[0].properties["own"] == properties["own"]

    asyncio.run(script())


def test_a_half_without_room_for_checks_is_given_up_and_others_are_checked(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        settings = {"transactionCheckInterval": "100", "transactionTimeOut": "0"}
        broker = broker_on(tmp_path, **settings)
        async with broker, Session("127.0.0.1:1") as session:
            producer = TransactionPeer(session, broker.address)
            await producer.beat()
            refused = await producer.send(b"F", now() - 1000, 4, own="x" * 32550)
            assert refused.code == ResponseCode.MESSAGE_ILLEGAL  # room is reserved at the send
            # As an older broker would have stored it.
            old = {"REAL_TOPIC": "Orders", "REAL_QID": "2", "PGROUP": "P", "TRAN_MSG": "true"}
            old["own"] = "x" * (MAX_LENGTH - len(encode({**old, "own": ""})))
            half = StoredMessage(HALF, b"full", old, born_timestamp=now() - 1000)
            broker.delivery.transactions.put_half(half)
            other = await producer.prepare(b"other", now() - 1000)
            async with asyncio.timeout(30):
                _, message = await producer.checks.get()
                assert message.body == b"other"
                while broker.delivery.checks.given_up == 0:
                    await producer.beat()
            record = broker.delivery.writer.read_entry(GIVEN_UP, 0, 0)
            assert record is not None and record.body == b"full"
            newest = broker.delivery.transactions.ledger.find(
                broker.delivery.transactions.find_half(other.physical)  # type: ignore[arg-type]
            )
            assert newest is not None and len(broker.delivery.transactions.ledger) == 1
            assert (await producer.end(other, ROLLBACK)).code == ResponseCode.SUCCESS

    asyncio.run(script())


def test_records_of_the_revive_topic_that_cannot_be_handled_end_no_start(tmp_path: Path) -> None:
    bad = [
        b'{"so":0,"pt":1,"it":1,"bm":0,"n":1099511627776,"q":0,"t":"T","c":"G"}',
        b'{"so":9223372036854775807,"pt":1,"it":1,"n":2,"q":0,"t":"Popped","c":"G","d":[0,9]}',
        b'{"so":0,"pt":9223372036854775807,"it":9223372036854775807,"n":1,"t":"T","c":"G"}',
        b'{"so":0,"pt":1,"it":1,"n":1,"q":2147483648,"t":"Popped","c":"G","d":[0]}',
        b"{",
    ]

    async def before() -> None:
        async with broker_on(tmp_path, reviveQueueNum="1") as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 1)
            assert bodies(await consumer.pop(invisibleTime="60000")) == [b"0"]
            for body in bad:
                topic = broker.services.pop.points.topic
                broker.delivery.writer.put(StoredMessage(topic, body, {"TAGS": "ck"}))
            await send_to(peer, TOPIC, b"1")
            assert bodies(await consumer.pop(invisibleTime="200")) == [b"1"]
            again = await consumer.pop(pollTime="10000", bornTime=str(now()))
            assert bodies(again) == [b"1"]
            assert broker.tasks.failures == {}

    async def after() -> None:
        async with broker_on(tmp_path, reviveQueueNum="1") as broker, Peer(broker.port) as peer:
            await send_to(peer, TOPIC, b"2")
            assert bodies(await PopConsumer(peer, broker).pop()) == [b"2"]
            assert broker.tasks.failures == {}

    asyncio.run(before())
    assert len(lines(tmp_path)) >= 2
    asyncio.run(after())


def test_quarantined_items_are_reported_to_monitors(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            broker.stores.aside.put("timer", "by the test", "T", 0, 5)
            reply = await session.invoke(
                broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)
            )
            table = fastjson.loads(reply.body)["table"]
            assert (table["setAside"], table["taskFailures"]) == ("1", "0")
            values = {metric.name: metric.values for metric in broker.metrics().all()}
            assert values["mq_set_aside_total"] == [(("timer",), 1.0)]
            assert values["mq_task_failures_total"] == []
            assert "set aside by timer: 1" in broker.state()
        (line,) = lines(tmp_path)
        assert (line["service"], line["why"], line["topic"]) == ("timer", "by the test", "T")
        assert (line["queueOffset"], line["record"]) == (5, None)

    asyncio.run(script())


def test_the_file_is_limited_and_items_that_cannot_be_written_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker:
            items = Quarantine(broker.stores.messages)
            items.path.mkdir(parents=True)
            items.put("a", ValueError("x"), "T", 0, 0)
            with pytest.raises(OSError):
                await items.save()
            items.path.rmdir()
            await items.save()
            assert [line["why"] for line in lines(tmp_path)] == ["ValueError: x"]
            monkeypatch.setattr(quarantine, "MOST_BYTES", 600)
            for number in range(10):
                items.put("b", str(number), "T", 1 << 70, number)
                await items.save()
            old = items.path.with_name(quarantine.FILE_NAME + ".1")
            assert max(items.path.stat().st_size, old.stat().st_size) <= 600
            assert lines(tmp_path)[-1]["why"].startswith("9")

    asyncio.run(script())


def test_items_written_by_a_cancelled_save_exist_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, written = threading.Event(), threading.Event(), threading.Semaphore(0)
    write = Quarantine._write

    def slow(self: Quarantine, data: bytes) -> None:
        begun.set()
        assert go_on.wait(20)
        write(self, data)
        written.release()

    monkeypatch.setattr(Quarantine, "_write", slow)

    async def script() -> None:
        async with broker_on(tmp_path) as broker:
            items = Quarantine(broker.stores.messages)
            items.put("a", "first", "T", 0, 0)
            cancelled = asyncio.create_task(items.save())
            assert await asyncio.to_thread(begun.wait, 20)
            cancelled.cancel()  # as by a stop, which saves once more
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            items.put("a", "second", "T", 0, 1)
            last = asyncio.create_task(items.save())
            await asyncio.sleep(0)
            go_on.set()
            await last
            for _ in range(2):  # one per thread
                assert await asyncio.to_thread(written.acquire, timeout=20)
            assert [line["why"] for line in lines(tmp_path)] == ["first", "second"]

    asyncio.run(script())


def test_an_item_that_cannot_be_read_from_disk_is_retried_for_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "RETRY_SECONDS", 0)
    tried: list[str] = []
    set_aside: list[str] = []

    def put(item: str, outcome: Any) -> None:
        tried.append(item)
        if item == "bad":
            raise OSError("as the test wants it")
        outcome(None)

    asyncio.run(
        waiting.store_all(["a", "bad", "b"], put, lambda item, _: set_aside.append(item), "x")
    )
    assert (tried.count("a"), tried.count("b"), set_aside) == (1, 1, ["bad"])
    assert tried.count("bad") == waiting.MOST_ATTEMPTS
