"""Delayed messages: not before their time, soon after, and none is lost at a stop."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.protocol import fastjson
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.daemons.broker.running import broker_on, pull, send, send_back
from tests.daemons.stopped_time import stopped_time


@answered.by_broker(RequestCode.SEND_MESSAGE_V2)
def test_a_delayed_message_is_delivered_when_due_with_all_its_properties(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            began = time.time()
            properties = {"DELAY": "1", "TAGS": "t", "KEYS": "k", "own": "x"}
            with stopped_time():
                reply = await send(session, broker.address, b"body", properties)
                assert (reply.code, reply.fields["queueId"]) == (0, "1")
                assert broker.stores.messages.max_offset("Later", 1) == 0
            (message,) = await pull(session, broker.address, "Later", 1)
            assert time.time() - began >= 1
            assert (message.body, message.flag, message.born_timestamp) == (b"body", 5, 7)
            # As stored by Java: the text keeps the message's earlier topics.
            assert message.properties == {
                **properties,
                "REAL_TOPIC": "Later",
                "REAL_QID": "1",
                "CLUSTER": "DefaultCluster",
            }
            code = broker.stores.messages.entries.at("Later", 1, 0)
            assert code is not None and code[2] == ord("t")

    asyncio.run(script())


def test_a_level_beyond_the_highest_is_the_highest_and_levels_can_be_set(tmp_path: Path) -> None:
    async def script() -> None:
        broker = broker_on(tmp_path, messageDelayLevel="1h 1s")
        async with broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"soon", {"DELAY": "99"})
            await send(session, broker.address, b"late", {"DELAY": "1"})
            (message,) = await pull(session, broker.address, "Later", 1)
            assert message.body == b"soon"
            assert message.properties["DELAY"] == "2"
            assert broker.stores.messages.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1

    asyncio.run(script())


def test_messages_of_a_removed_level_are_delivered_when_due(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script() -> None:
        async with Session("127.0.0.1:1") as session:
            async with broker_on(tmp_path, messageDelayLevel="1s 2s 1h") as broker:
                for level, body in (("2", b"soon"), ("3", b"late")):
                    await send(session, broker.address, body, {"DELAY": level})
            async with broker_on(tmp_path, messageDelayLevel="1s") as broker:
                (message,) = await pull(session, broker.address, "Later", 1)
                assert message.body == b"soon"
                assert broker.stores.messages.max_offset("Later", 1) == 1

    asyncio.run(script())
    warned = [line for line in caplog.messages if "messageDelayLevel no longer has" in line]
    assert [line.partition(" in ")[0] for line in warned] == [
        f"delay level {n}: 1 messages wait" for n in (2, 3)
    ]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_messages_due_while_the_broker_is_down_are_delivered_once_after_its_start(
    tmp_path: Path, flush: str
) -> None:
    async def script() -> None:
        async with AsyncExitStack() as until_it_is_down, Session("127.0.0.1:1") as session:
            broker = broker_on(tmp_path, flushDiskType=flush)
            async with broker:
                await send(session, broker.address, b"one", {"DELAY": "1"})
                await pull(session, broker.address, "Later", 1)
                until_it_is_down.enter_context(stopped_time())
                await send(session, broker.address, b"two", {"DELAY": "1"})
        saved = fastjson.loads((tmp_path / "config" / "delayOffset.json").read_bytes())
        assert saved == {"offsetTable": {"1": 1}}
        async with (
            broker_on(tmp_path, flushDiskType=flush) as broker,
            Session("127.0.0.1:1") as session,
        ):
            found = await pull(session, broker.address, "Later", 2)
            assert [message.body for message in found] == [b"one", b"two"]
            assert broker.stores.messages.max_offset("Later", 1) == 2

    asyncio.run(script())


def test_thousands_of_delayed_messages_are_delivered_in_order(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            count = 3000
            sends = [
                send(session, broker.address, b"%d" % number, {"DELAY": "1"})
                for number in range(count)
            ]
            assert {reply.code for reply in await asyncio.gather(*sends)} == {0}
            found = await pull(session, broker.address, "Later", count)
            assert [int(message.body) for message in found] == list(range(count))

    asyncio.run(script())


@answered.by_broker(RequestCode.GET_ALL_DELAY_OFFSET)
def test_an_offset_outside_its_queue_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_bytes(b'{"offsetTable":{1:77,3:5}}')

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            assert broker.delivery.delayed.offsets == {1: 0, 3: 0}
            # Before a message arrives: after a kill they would be skipped.
            saved = fastjson.loads((tmp_path / "config" / "delayOffset.json").read_bytes())
            assert saved == {"offsetTable": {"1": 0, "3": 0}}
            reply = await session.invoke(broker.address, Command(RequestCode.GET_ALL_DELAY_OFFSET))
            assert fastjson.loads(reply.body) == {
                "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
                "offsetTable": {"1": 0, "3": 0},
            }
            reply = await session.invoke(
                broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)
            )
            assert fastjson.loads(reply.body)["table"]["scheduleMessageOffset_3"] == "0,0"
            await send(session, broker.address, b"one", {"DELAY": "1"})
            await pull(session, broker.address, "Later", 1)

    asyncio.run(script())


@answered.by_broker(RequestCode.CONSUMER_SEND_MSG_BACK)
def test_a_message_sent_back_is_delivered_in_the_retry_topic(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            sent = await send(session, broker.address, b"bad", {"UNIQ_KEY": "U"})
            (message,) = await pull(session, broker.address, "Later", 1)
            reply = await session.invoke(broker.address, send_back(message.physical_offset))
            assert reply.code == ResponseCode.SUCCESS
            (again,) = await pull(session, broker.address, "%RETRY%G", 1)
            assert (again.body, again.reconsume_times) == (b"bad", 1)
            assert again.properties["RETRY_TOPIC"] == "Later"
            assert again.properties["ORIGIN_MESSAGE_ID"] == sent.fields["msgId"]
            # The tenth attempt was its last.
            reply = await session.invoke(
                broker.address, send_back(again.physical_offset, maxReconsumeTimes="1")
            )
            assert reply.code == ResponseCode.SUCCESS
            (dead,) = await pull(session, broker.address, "%DLQ%G", 1)
            assert (dead.body, dead.reconsume_times) == (b"bad", 2)
            assert dead.properties["RETRY_TOPIC"] == "Later"

    asyncio.run(script())


def test_a_retry_that_failed_too_often_becomes_a_dead_letter_at_once(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            fields = {"b": "%RETRY%G", "e": "0", "j": "3", "l": "3"}
            reply = await send(session, broker.address, b"bad", {"DELAY": "9"}, **fields)
            assert reply.code == ResponseCode.SUCCESS
            (dead,) = await pull(session, broker.address, "%DLQ%G", 1)
            assert dead.body == b"bad"

    asyncio.run(script())


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, 4711"),
        ({"group": "no group!"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "not exist"),
        ({"delayLevel": "x"}, ResponseCode.SYSTEM_ERROR, "delayLevel"),
    ],
)
def test_an_invalid_send_back_is_refused_with_its_cause(
    tmp_path: Path, fields: dict[str, str], code: ResponseCode, text: str
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            reply = await session.invoke(broker.address, send_back(4711, **fields))
            assert reply.code == code
            assert text in (reply.remark or "")

    asyncio.run(script())


@pytest.mark.parametrize("properties", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "500"}])
def test_delivered_messages_are_on_the_disk_before_their_offset_is_saved(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    async def script() -> None:
        seldom = {"flushIntervalCommitLog": "3600000", "flushDelayOffsetInterval": "3600000"}
        seldom |= {"timerFlushIntervalMs": "3600000"}
        broker = broker_on(tmp_path, **seldom)
        async with broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"one", properties)
            (message,) = await pull(session, broker.address, "Later", 1)
            assert broker.stores.messages.log.flushed <= message.physical_offset
            await (
                broker.delivery.delayed
                if broker.delivery.timer.timer is None
                else broker.delivery.timer.timer
            ).save()
            assert broker.stores.messages.log.flushed > message.physical_offset

    asyncio.run(script())
