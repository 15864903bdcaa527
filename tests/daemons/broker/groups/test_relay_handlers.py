"""Requests that the broker forwards to consumers; the consumers are scripted here."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from mq.protocol.bodies import (
    ConsumerData,
    GetConsumerStatusBody,
    HeartbeatData,
    MessageQueue,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from mq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import decode_record
from mq.protocol.versions import CURRENT_VERSION
from tests import answered
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.peer import PATIENCE, Peer

QUEUE = MessageQueue("T", "broker-a", 0)


async def join(peer: Peer, client_id: str, version: int = CURRENT_VERSION) -> None:
    body = HeartbeatData(
        client_id=client_id, consumer_data_set=[ConsumerData(group_name="g")]
    ).encode()
    reply = await peer.ask(RequestCode.HEART_BEAT, None, body, version=version)
    assert reply.code == ResponseCode.SUCCESS


async def next_of(peer: Peer, code: int) -> Command:
    """The next request of this code that the broker sends to a consumer."""
    while (command := await peer.pushed_command()).code != code:
        pass
    return command


async def while_asking(asking: Awaitable[Command], script: Awaitable[None]) -> Command:
    reply, _ = await asyncio.gather(asking, script)
    return reply


@answered.by_broker(RequestCode.GET_CONSUMER_RUNNING_INFO)
def test_a_consumer_returns_its_internal_state(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        async with Peer(broker.port) as consumer:
            await join(consumer, "c1")

            async def answer() -> None:
                request = await next_of(consumer, RequestCode.GET_CONSUMER_RUNNING_INFO)
                assert request.fields["jstackEnable"] == "true"
                consumer.answer(request, body=b'{"jstack":"here"}')

            fields = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
            reply = await while_asking(
                peer.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields), answer()
            )
            assert (reply.code, bytes(reply.body)) == (0, b'{"jstack":"here"}')
            fields["clientId"] = "nobody"
            reply = await peer.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
            assert reply.remark == "The Consumer <g> <nobody> not online"

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("way", "code"),
    [("silent", ResponseCode.CONSUME_MSG_TIMEOUT), ("gone", ResponseCode.SYSTEM_ERROR)],
)
def test_a_consumer_that_does_not_reply_is_named(
    tmp_path: Path, way: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "silent":
        monkeypatch.setattr("mq.daemons.broker.groups.relay_handlers.CALL_SECONDS", 0.05)

    async def script(broker: Harness, peer: Peer) -> None:
        async with Peer(broker.port) as consumer:
            await join(consumer, "c1")

            async def ignore() -> None:
                await next_of(consumer, RequestCode.GET_CONSUMER_RUNNING_INFO)
                if way == "gone":
                    await consumer.close()

            fields = {"consumerGroup": "g", "clientId": "c1"}
            reply = await while_asking(
                peer.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields), ignore()
            )
            assert reply.code == code
            assert "<g> <c1>" in (reply.remark or "")

    serve(tmp_path, script)


@answered.by_broker(RequestCode.CONSUME_MESSAGE_DIRECTLY)
def test_a_consumer_gets_a_stored_message_to_consume_directly(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 1)
        offset_id = await send(peer, "T", b"again")
        async with Peer(broker.port) as consumer:
            await join(consumer, "c1")

            async def consume() -> None:
                request = await next_of(consumer, RequestCode.CONSUME_MESSAGE_DIRECTLY)
                assert decode_record(request.body).body == b"again"
                assert request.fields["brokerName"] == "broker-a"
                consumer.answer(request, body=b'{"consumeResult":"CR_SUCCESS"}')

            fields = {"consumerGroup": "g", "clientId": "c1", "msgId": offset_id}
            reply = await while_asking(
                peer.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields), consume()
            )
            assert bytes(reply.body) == b'{"consumeResult":"CR_SUCCESS"}'
            for bad in ("xyz", offset_id[:-1] + "7"):
                reply = await peer.ask(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY, fields | {"msgId": bad}
                )
                assert reply.code == ResponseCode.SYSTEM_ERROR

    serve(tmp_path, script)


RESET = {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true"}


@answered.by_broker(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
@pytest.mark.parametrize(
    ("change", "offset"),
    [
        ({}, 3),
        ({"isForce": "false"}, 2),
        ({"timestamp": "0"}, 0),
        ({"timestamp": "0", "isForce": "false"}, 0),
    ],
)
def test_consumers_are_notified_of_new_offsets(
    tmp_path: Path, change: dict[str, str], offset: int
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 1)
        for _ in range(3):
            await send(peer, "T", b"x")
        broker.stores.offsets.commit("g", "T", 0, 2)
        reply = await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET | change)
        assert reply.code == ResponseCode.CONSUMER_NOT_ONLINE
        async with Peer(broker.port) as consumer:
            await join(consumer, "c1")
            reply = await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET | change)
            assert ResetOffsetBody.decode(reply.body).offset_table == {QUEUE: offset}
            told = await next_of(consumer, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            assert told.is_one_way
            assert ResetOffsetBody.decode(told.body).offset_table == {QUEUE: offset}
            await peer.ask(
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                RESET | change,
                language=LanguageCode.CPP,
            )
            told = await next_of(consumer, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
            listed = ResetOffsetBodyForC.decode(told.body).offset_table
            assert [(q.topic, q.queue_id, q.offset) for q in listed] == [("T", 0, offset)]

    serve(tmp_path, script)


def test_a_reset_without_topic_or_offsets_is_refused(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        assert "no topic in this broker. topic=T" in (reply.remark or "")
        await create_topic(peer, "T", 1)
        reply = await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
        assert reply.remark == "THe consumer group <g> not exist"

    serve(tmp_path, script)


@answered.by_broker(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
def test_consumers_return_their_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = "mq.daemons.broker.groups.relay_handlers.STATUS_SECONDS"

    async def script(broker: Harness, peer: Peer) -> None:
        fields = {"topic": "T", "group": "g"}
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        reply = await peer.ask(code, fields)
        assert reply.remark == "No Any Consumer online in the consumer group: [g]"
        async with Peer(broker.port) as one, Peer(broker.port) as silent:
            await join(silent, "c2")
            with monkeypatch.context() as short:
                short.setattr(seconds, 0.05)
                reply = await peer.ask(code, fields)
            assert GetConsumerStatusBody.decode(reply.body).consumer_table == {}
            await join(one, "c1")

            async def answer() -> None:
                request = await next_of(one, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
                body = GetConsumerStatusBody(message_queue_table={QUEUE: 7})
                one.answer(request, body=body.encode())
                await silent.close()

            monkeypatch.setattr(seconds, PATIENCE)
            reply = await while_asking(peer.ask(code, fields), answer())
            assert GetConsumerStatusBody.decode(reply.body).consumer_table == {"c1": {QUEUE: 7}}

    serve(tmp_path, script)


@pytest.mark.parametrize(("version", "refused"), [(27, True), (28, False)])
def test_a_consumer_before_3_0_7_gets_no_unknown_request(
    tmp_path: Path, version: int, refused: bool
) -> None:
    text = "the client does not support this feature. version=V3_0_6"

    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T", 1)
        broker.stores.offsets.commit("g", "T", 0, 0)
        async with Peer(broker.port) as consumer:
            await join(consumer, "old", version)
            reply = await peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
            assert (reply.code, reply.remark) == ((1, text) if refused else (0, None))
            fields = {"topic": "T", "group": "g", "clientAddr": "another"}
            reply = await peer.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
            assert (reply.code, reply.remark) == ((1, text) if refused else (0, None))

    serve(tmp_path, script)
