"""Sends in rarely used forms: the message is stored unchanged."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.batch import encode_batch
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.send import ReplyMessageRequestHeader
from mq.protocol.message import Message, StoredMessage
from tests import answered
from tests.daemons.broker.harness import create_topic
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer

FIRST_FORM = {
    "producerGroup": "P",
    "topic": "Sent",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "3",
    "properties": "KEYS\x01k\x02TAGS\x01t",
    "reconsumeTimes": "0",
    "unitMode": "false",
}
SECOND_FORM = {"a": "P", "b": "Sent", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "7"}
SECOND_FORM |= {"h": "3", "i": "", "j": "0", "k": "false"}
TOO_MUCH = ResponseCode.MESSAGE_ILLEGAL


def run(root: Path, script: Callable[[Broker, Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with broker_on(root) as broker, Peer(broker.port) as peer:
            await create_topic(peer, "Sent", 2)
            await script(broker, peer)

    asyncio.run(main())


def stored(broker: Broker, topic: str, queue_id: int) -> list[StoredMessage]:
    """The messages of a queue."""
    found = []
    for index in range(broker.stores.messages.max_offset(topic, queue_id)):
        entry = broker.stores.messages.entries.at(topic, queue_id, index)
        assert entry is not None
        message = broker.delivery.writer.read(entry[0])
        assert message is not None
        found.append(message)
    return found


@answered.by_broker(RequestCode.SEND_MESSAGE)
def test_a_message_with_the_first_header_version_is_stored_as_with_the_second(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.SEND_MESSAGE, FIRST_FORM, b"first")
        assert reply.code == ResponseCode.SUCCESS, reply
        assert (reply.fields["queueId"], reply.fields["queueOffset"]) == ("1", "0")
        (message,) = stored(broker, "Sent", 1)
        assert (message.body, message.flag, message.keys) == (b"first", 3, ("k",))
        assert message.offset_id == reply.fields["msgId"]
        lacking = {name: value for name, value in FIRST_FORM.items() if name != "topic"}
        reply = await peer.ask(RequestCode.SEND_MESSAGE, lacking, b"x")
        assert reply.code == ResponseCode.SYSTEM_ERROR

    run(tmp_path, script)


@answered.by_broker(RequestCode.SEND_BATCH_MESSAGE)
def test_the_messages_of_a_batch_are_stored_one_by_one(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        messages = [Message("Sent", b"%d" % number, tags="t") for number in range(3)]
        fields = {"a": "P", "b": "Sent", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
        fields |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "true"}
        reply = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(messages))
        assert reply.code == ResponseCode.SUCCESS, reply
        found = stored(broker, "Sent", 0)
        assert [(message.body, message.tags) for message in found] == [
            (b"%d" % number, "t") for number in range(3)
        ]
        assert reply.fields["msgId"] == ",".join(message.offset_id for message in found)

    run(tmp_path, script)


def test_a_batch_request_without_the_batch_flag_is_one_message(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        fields = {"a": "P", "b": "Sent", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
        fields |= {"h": "0", "i": "", "j": "0", "k": "false"}
        body = encode_batch([Message("Sent", b"1"), Message("Sent", b"2")])
        for saying in ({"m": "false"}, {}):
            reply = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, {**fields, **saying}, body)
            assert reply.code == ResponseCode.SUCCESS, reply
        assert [message.body for message in stored(broker, "Sent", 0)] == [body, body]

    run(tmp_path, script)


@answered.by_broker(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
@pytest.mark.parametrize(
    ("code", "form", "properties_name"),
    [
        (RequestCode.SEND_REPLY_MESSAGE, FIRST_FORM, "properties"),
        (RequestCode.SEND_REPLY_MESSAGE_V2, SECOND_FORM, "i"),
    ],
)
def test_a_reply_with_either_header_version_is_pushed_and_stored(
    tmp_path: Path, code: RequestCode, form: dict[str, str], properties_name: str
) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        async with Peer(broker.port) as asker:
            heartbeat = {"clientID": "asker@1", "producerDataSet": [{"groupName": "Askers"}]}
            body = json.dumps(heartbeat | {"consumerDataSet": []}).encode()
            assert (await asker.ask(RequestCode.HEART_BEAT, None, body)).code == 0
            properties = "REPLY_TO_CLIENT\x01asker@1\x02CORRELATION_ID\x01c1"
            sending = asyncio.create_task(
                peer.ask(code, {**form, properties_name: properties}, b"answer")
            )
            pushed = await asker.pushed_command()
            assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
            header = ReplyMessageRequestHeader.decode(pushed.fields)
            assert (header.topic, bytes(pushed.body)) == ("Sent", b"answer")
            assert "CORRELATION_ID\x01c1" in (header.properties or "")
            asker.answer(pushed)
            reply = await sending
            assert reply.code == ResponseCode.SUCCESS, reply
            (message,) = stored(broker, "Sent", 1)
            assert message.offset_id == reply.fields["msgId"]
        lost = await peer.ask(
            code, {**form, properties_name: "REPLY_TO_CLIENT\x01nobody"}, b"answer"
        )
        assert lost.code == ResponseCode.SYSTEM_ERROR
        assert "channel of <nobody> not found" in (lost.remark or "")

    run(tmp_path, script)


def test_properties_that_a_recovery_would_treat_as_incomplete_are_refused(tmp_path: Path) -> None:
    """In a batch, the whole batch is refused."""

    async def script(broker: Broker, peer: Peer) -> None:
        for zeros, code in (("\0" * 511, ResponseCode.SUCCESS), ("\0" * 512, TOO_MUCH)):
            for name, value in (("a", f"b{zeros}c"), (f"a{zeros}b", "c")):
                fields = {**SECOND_FORM, "i": f"{name}\x01{value}"}
                reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
                assert reply.code == code, reply
                batch = [Message("Sent", b"1"), Message("Sent", b"2", properties={name: value})]
                fields = {**SECOND_FORM, "m": "true"}
                reply = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(batch))
                assert reply.code == code, reply
        assert "512 zeros in a row" in (reply.remark or "")
        assert [message.body for message in stored(broker, "Sent", 1)] == [b"x", b"1", b"2"] * 2

    run(tmp_path, script)


def test_timer_properties_count_only_as_whole_names(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        log = broker.stores.messages.log
        for text in ("a\x01TIMER_DELAY_SEC", "aTIMER_DELAY_SEC\x011"):
            first = log.written
            for properties in (text, text.replace("TIMER_D", "timer_d")):
                fields = {**SECOND_FORM, "i": f"CLUSTER\x01mine\x02{properties}"}
                reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
                assert reply.code == ResponseCode.SUCCESS, reply
            written = bytes(log.files[-1].view[first : log.written])
            asking, other = written[: len(written) // 2], written[len(written) // 2 :]
            behind_head = asking.index(b"Sent")
            assert asking[behind_head:] == other.replace(b"timer_d", b"TIMER_D")[behind_head:]

    run(tmp_path, script)
