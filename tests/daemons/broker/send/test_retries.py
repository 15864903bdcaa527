"""Unusual retries and dead letters: with full properties, without properties, or for a read-only
topic.
"""

import asyncio
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.statistics.stat_items import MINUTE
from mq.protocol.bodies import ConsumerData, HeartbeatData, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message_id import encode_offset_id
from mq.protocol.properties import MAX_LENGTH, encode
from tests.daemons.broker.pop.consumers import PopConsumer, fill
from tests.daemons.broker.running import broker_on, pull, send, send_back
from tests.daemons.peer import Peer


def full(room: int) -> dict[str, str]:
    """Properties of a message that leave so many bytes, CLUSTER included."""
    taken = len(encode({"own": "", "CLUSTER": "DefaultCluster"}))
    return {"own": "x" * (MAX_LENGTH - room - taken)}


@pytest.mark.parametrize("room", [0, 5, 30, 70, 100, 140])
def test_a_message_with_full_properties_that_is_sent_back_is_a_retry_or_dead_letter(
    tmp_path: Path, room: int
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            assert (await send(session, broker.address, b"bad", full(room))).code == 0
            (message,) = await pull(session, broker.address, "Later", 1)
            reply = await session.invoke(broker.address, send_back(message.physical_offset))
            assert reply.code == ResponseCode.SUCCESS
            topic = "%DLQ%G" if room < 18 else "%RETRY%G"  # RETRY_TOPIC is what consumers need
            (again,) = await pull(session, broker.address, topic, 1)
            assert (again.body, again.reconsume_times) == (b"bad", 1)
            assert again.properties["own"] == message.properties["own"]
            assert again.properties.get("RETRY_TOPIC", "Later") == "Later"
            assert ("RETRY_TOPIC" in again.properties) == (topic == "%RETRY%G")

    asyncio.run(script())


UNIQUE = "7F00000100002A139A5D0B1F2C3D0001"
OTHER = "7F00000100002A139A5D0B1F2C3D0002"


@pytest.mark.parametrize("properties", [{"UNIQ_KEY": UNIQUE}, {}])
def test_no_other_message_is_delivered_in_place_of_the_one_sent_back(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    """A broker of the same name has another log now."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            assert (await send(session, broker.address, b"another", properties)).code == 0
            (message,) = await pull(session, broker.address, "Later", 1)
            at = message.physical_offset
            elsewhere = encode_offset_id("127.0.0.1", 10911, at + 1)
            for named in (OTHER, elsewhere, "no id"):
                back = send_back(at, originMsgId=named)
                reply = await session.invoke(broker.address, back)
                assert reply.code == ResponseCode.SYSTEM_ERROR
                assert reply.remark == (
                    f"the message at offset {at} is not {named}: that was in another log"
                )
            assert broker.stores.messages.max_offset("%RETRY%G", 0) == 0

    asyncio.run(script())


@pytest.mark.parametrize("properties", [{"UNIQ_KEY": UNIQUE}, {}])
def test_a_message_sent_back_by_any_of_its_ids_is_delivered_each_time(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            assert (await send(session, broker.address, b"bad", properties)).code == 0
            (first,) = await pull(session, broker.address, "Later", 1)
            message = first
            for count in range(5):  # each time as the retry of the previous one
                own = message.offset_id
                named = (first.message_id, own, own.lower(), first.offset_id, "")[count]
                again = send_back(message.physical_offset, originMsgId=named)
                reply = await session.invoke(broker.address, again)
                assert reply.code == ResponseCode.SUCCESS, reply.remark
                *_, message = await pull(session, broker.address, "%RETRY%G", count + 1)
                assert (message.body, message.reconsume_times) == (b"bad", count + 1)
                assert message.properties["ORIGIN_MESSAGE_ID"] == first.offset_id

    asyncio.run(script())


@pytest.mark.parametrize("room", [0, 12, 25])
def test_a_retry_with_full_properties_that_its_consumer_sends_is_not_delayed(
    tmp_path: Path, room: int
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            properties = {"DELAY": "9", **full(room + len(encode({"DELAY": "9"})) + 1)}
            fields = {"b": "%RETRY%G", "e": "0", "j": "1", "l": "3"}
            reply = await send(session, broker.address, b"bad", properties, **fields)
            assert reply.code == ResponseCode.SUCCESS
            (again,) = await pull(session, broker.address, "%RETRY%G", 1)
            assert again.body == b"bad"

    asyncio.run(script())


def test_a_retry_that_failed_too_often_becomes_a_dead_letter_without_properties_too(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            fields = {"b": "%RETRY%G", "e": "0", "j": "3", "l": "3"}
            reply = await send(session, broker.address, b"bad", {}, **fields)
            assert reply.code == ResponseCode.SUCCESS
            (dead,) = await pull(session, broker.address, "%DLQ%G", 1)
            assert (dead.body, dead.reconsume_times) == (b"bad", 3)
            assert broker.stores.messages.max_offset("%RETRY%G", 0) == 0

    asyncio.run(script())


def test_a_message_with_the_highest_consume_count_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"bad", {}, j="2147483647")
            (message,) = await pull(session, broker.address, "Later", 1)
            reply = await session.invoke(broker.address, send_back(message.physical_offset))
            assert reply.code == ResponseCode.SUCCESS
            (dead,) = await pull(session, broker.address, "%DLQ%G", 1)
            assert dead.reconsume_times == 2147483647

    asyncio.run(script())


def test_dead_letters_are_stored_although_their_topic_is_read_only(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, b"bad", {})
            (message,) = await pull(session, broker.address, "Later", 1)
            dead = TopicConfig(topic_name="%DLQ%G", read_queue_nums=1, write_queue_nums=1, perm=4)
            await broker.stores.topics.update(dead)
            back = send_back(message.physical_offset, delayLevel="-1")
            assert (await session.invoke(broker.address, back)).code == ResponseCode.SUCCESS
            fields = {"b": "%RETRY%G", "e": "0", "j": "3", "l": "3"}
            reply = await send(session, broker.address, b"worse", {"TAGS": "t"}, **fields)
            assert reply.code == ResponseCode.SUCCESS
            found = await pull(session, broker.address, "%DLQ%G", 2)
            assert [letter.body for letter in found] == [b"bad", b"worse"]
            retry = TopicConfig(
                topic_name="%RETRY%G", read_queue_nums=1, write_queue_nums=1, perm=4
            )
            await broker.stores.topics.update(retry)
            assert (await session.invoke(broker.address, back)).code == ResponseCode.NO_PERMISSION

    asyncio.run(script())


@pytest.mark.parametrize(
    ("length", "level", "taken_by"),
    [
        (120, "1", "%RETRY%"),
        (121, "1", None),
        (121, "-1", "%DLQ%"),
        (122, "-1", "%DLQ%"),
        (123, "-1", None),
        (255, "1", None),
        (255, "-1", None),
    ],
)
def test_a_group_whose_retries_have_no_legal_name_keeps_its_message(
    tmp_path: Path, length: int, level: str, taken_by: str | None
) -> None:
    group = "g" * length

    async def script() -> None:
        settings = {"messageDelayLevel": "1s"}
        async with broker_on(tmp_path, **settings) as broker, Session("127.0.0.1:1") as session:
            assert (await send(session, broker.address, b"bad", {})).code == 0
            (message,) = await pull(session, broker.address, "Later", 1)
            back = send_back(message.physical_offset, group=group, delayLevel=level)
            reply = await session.invoke(broker.address, back)
            if taken_by is not None:
                assert reply.code == ResponseCode.SUCCESS
                (again,) = await pull(session, broker.address, f"{taken_by}{group}", 1)
                assert again.body == b"bad"
                return
            assert reply.code == ResponseCode.MESSAGE_ILLEGAL
            assert "at most 120 characters" in (reply.remark or "")
            assert broker.stores.topics.get(f"%DLQ%{group}") is None
            assert broker.stores.messages.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 0

    asyncio.run(script())


def test_a_group_with_a_long_name_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = ConsumerData(group_name="g" * 121)
    beat = HeartbeatData(client_id="c", consumer_data_set=[consumer]).encode()

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            for _ in range(2):
                assert (await peer.ask(RequestCode.HEART_BEAT, {}, beat)).code == 0

    asyncio.run(script())
    warned = [line for line in caplog.messages if "failed messages are not redelivered" in line]
    assert len(warned) == 1


def test_a_group_has_offsets_in_a_retry_topic_of_java_5(tmp_path: Path) -> None:
    group = "g" * 200
    where = {"consumerGroup": group, "topic": f"%RETRY%{group}", "queueId": "0"}

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            update = {**where, "commitOffset": "5"}
            assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update)).code == 0
            asked = await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, where)
            assert asked.fields == {"offset": "5"}

    asyncio.run(script())


def test_messages_of_users_are_counted_and_internal_records_are_not(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 5)
            for popped in await consumer.pop():
                assert (await consumer.ack(popped)).code == ResponseCode.SUCCESS
            broker.stats.items.sample(MINUTE)
            figure = broker.stats.items.view("BROKER_PUT_NUMS", "DefaultCluster")
            assert figure is not None and figure.stats_minute is not None
            assert figure.stats_minute.sum == 5
            assert broker.stats.counters.puts > 10  # the total of the store is another figure
            command = await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            assert isinstance(command, Command)

    asyncio.run(script())
