"""Claims of clients about themselves, and the requests that they get: docs/decisions/0030."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.clients.client_handlers import MOST_HEARTBEAT_BYTES
from mq.daemons.broker.store.index.index import key_hash
from mq.daemons.dispatch import LARGE_BODY
from mq.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from mq.protocol.codes import RequestCode as Code
from mq.protocol.codes import ResponseCode
from mq.protocol.message import StoredMessage, decode_records
from mq.protocol.message_id import decode_offset_id
from tests.daemons.broker.acl.guarded import (
    ADMIN,
    DEFAULT,
    MINE,
    NOTHING,
    THEIRS,
    SigningPeer,
    pull_fields,
    send_fields,
    serve,
)
from tests.daemons.broker.running import now

TRACE = "RMQ_SYS_TRACE_TOPIC"
HIDDEN = b"hidden-message"


def beat(client_id: str, *producers: str) -> bytes:
    groups = [ProducerData(group_name=name) for name in producers]
    return HeartbeatData(client_id=client_id, producer_data_set=groups).encode()


async def beats(peer: SigningPeer, client_id: str, *producers: str) -> None:
    reply = await peer.ask(Code.HEART_BEAT, {}, beat(client_id, *producers))
    assert reply.code == ResponseCode.SUCCESS, reply


def test_every_account_sends_traces_and_permitted_ones_read_them(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, NOTHING) as peer:
            reply = await peer.ask(Code.SEND_MESSAGE_V2, send_fields(TRACE), b"x")
            assert reply.code == ResponseCode.SUCCESS
        query = {"topic": TRACE, "key": "k", "maxNum": "1", "beginTimestamp": "0"}
        query["endTimestamp"] = "1"
        for who, group, may in (
            (NOTHING, "mine_group", False),
            (MINE, "mine_group", False),
            (DEFAULT, "any_group", True),
            (ADMIN, "any_group", True),
        ):
            async with SigningPeer(broker, who) as peer:
                pulled = await peer.ask(Code.PULL_MESSAGE, pull_fields(TRACE, group))
                asked = await peer.ask(Code.QUERY_MESSAGE, query)
                refused = ResponseCode.NO_PERMISSION
                assert (pulled.code == refused, asked.code == refused) == (not may, not may)

    serve(tmp_path, script, traceTopicEnable="true")


def test_a_check_is_sent_to_a_producer_that_may_send_to_the_topic(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with (
            SigningPeer(broker, MINE) as stranger,
            SigningPeer(broker, THEIRS) as owner,
        ):
            await beats(stranger, "s", "P")
            text = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U"
            fields = send_fields("secret", properties=text)
            fields["g"] = str(now() - 60_000)
            assert (await owner.ask(Code.SEND_MESSAGE_V2, fields, HIDDEN)).code == 0
            await asyncio.sleep(0.002)  # a check round skips halves younger than itself
            await broker.delivery.checks.round()
            assert broker.delivery.checks.checked == 0  # no producer with permission is connected
            await beats(owner, "o", "P")
            for _ in range(4):  # members in turn
                await asyncio.sleep(0.002)
                await broker.delivery.checks.round()
            assert broker.delivery.checks.checked == 4
            checks = [await owner.pushed_command() for _ in range(4)]
            assert {check.code for check in checks} == {Code.CHECK_TRANSACTION_STATE}
            await beats(stranger, "s", "P")
            assert not stranger.pushed

    serve(tmp_path, script, transactionTimeOut="1", transactionCheckInterval="3600000")


def test_the_first_account_that_is_a_client_gets_its_replies(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, THEIRS) as owner, SigningPeer(broker, MINE) as other:
            await beats(owner, "asker", "P")
            await beats(other, "asker", "P")
            assert broker.clients.producers.find("asker") is await channel_of(broker, owner)
            async with SigningPeer(broker, THEIRS) as again:  # its old connection may be half dead
                await beats(again, "asker", "P")
                assert broker.clients.producers.find("asker") is await channel_of(broker, again)
            await owner.close()
            while broker.clients.producers.find("asker") is not None:
                await other.ask(Code.GET_BROKER_RUNTIME_INFO)
            await beats(other, "asker", "P")
            assert broker.clients.producers.find("asker") is await channel_of(broker, other)

    async def channel_of(broker: Broker, peer: SigningPeer) -> object:
        return next(c for c in broker.listener.channels if c.remote == peer.address)

    serve(tmp_path, script)


def colliding_key(topic: str, key: str, other: str) -> str:
    """A key that in topic `other` has the hash of `key` in `topic`."""
    digits = 8

    def number(text: str) -> int:
        found = 0
        for char in text:
            found = (found * 31 + ord(char)) & 0xFFFFFFFF
        return found

    low = sum(48 * 31**place for place in range(digits))
    start = number(f"{other}#") * 31**digits
    wanted = (number(f"{topic}#{key}") - start - low) % (1 << 32)
    chars = []
    for _ in range(digits):
        wanted, digit = divmod(wanted, 31)
        chars.append(chr(48 + digit))
    made = "".join(reversed(chars))
    assert key_hash(other, made) == key_hash(topic, key)
    return made


def test_a_key_with_the_hash_of_another_topics_key_finds_none_of_its_messages(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker) -> None:
        crafted = colliding_key("secret", "K", "mine")
        async with SigningPeer(broker, THEIRS) as owner, SigningPeer(broker, MINE) as other:
            fields = send_fields("secret", properties="KEYS\x01K")
            assert (await owner.ask(Code.SEND_MESSAGE_V2, fields, HIDDEN)).code == 0
            query = {"topic": "mine", "key": crafted, "maxNum": "8", "beginTimestamp": "0"}
            query["endTimestamp"] = str(1 << 60)
            reply = await other.ask(Code.QUERY_MESSAGE, query)
            assert (reply.code, reply.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
            # The reverse must not hide messages from their owner either.
            for _ in range(12):
                fields = send_fields("mine", properties=f"KEYS\x01{crafted}")
                assert (await other.ask(Code.SEND_MESSAGE_V2, fields, b"x")).code == 0
            query |= {"topic": "secret", "key": "K", "maxNum": "4"}
            reply = await owner.ask(Code.QUERY_MESSAGE, query)
            assert [bytes(m.body) for m in decode_records(reply.body)] == [HIDDEN]

    serve(tmp_path, script)


def test_a_message_sent_back_needs_read_permission_for_its_topic(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, THEIRS) as owner, SigningPeer(broker, MINE) as other:
            offsets = {}
            for peer, topic in ((owner, "secret"), (other, "mine")):
                reply = await peer.ask(Code.SEND_MESSAGE_V2, send_fields(topic), HIDDEN)
                offsets[topic] = decode_offset_id(reply.fields["msgId"]).offset
            back = {"group": "mine_group", "delayLevel": "1"}
            for topic, code in (("secret", 16), ("mine", 0)):
                fields = {**back, "offset": str(offsets[topic])}
                assert (await other.ask(Code.CONSUMER_SEND_MSG_BACK, fields)).code == code
            view = {"offset": str(offsets["secret"])}
            assert (await other.ask(Code.VIEW_MESSAGE_BY_ID, view)).code == 16
            assert (await owner.ask(Code.VIEW_MESSAGE_BY_ID, view)).code == 0

    serve(tmp_path, script)


@pytest.mark.parametrize("group_is_there", [True, False])
def test_a_retry_of_a_group_with_a_longer_name_is_not_sent_back_by_another(
    tmp_path: Path, group_is_there: bool
) -> None:
    """%RETRY%mine_group_mine: of group mine_group_mine, or popped by mine_group from mine."""

    async def script(broker: Broker) -> None:
        retry = "%RETRY%mine_group_mine"
        if group_is_there:
            broker.stores.groups.find("mine_group_mine")
        broker.stores.topics.create_internal(retry, 1)
        async with SigningPeer(broker, MINE) as other:
            offset = broker.delivery.writer.put(StoredMessage(retry, HIDDEN))
            broker.stores.messages.appender.commit()
            fields = {"group": "mine_group", "delayLevel": "1", "offset": str(offset)}
            reply = await other.ask(Code.CONSUMER_SEND_MSG_BACK, fields)
            assert reply.code == (16 if group_is_there else 0)

    serve(tmp_path, script)


def test_a_large_heartbeat_is_checked_as_well_and_one_too_large_is_not_read(
    tmp_path: Path,
) -> None:
    def of(group: str, blanks: int) -> bytes:
        data = ConsumerData(group_name=group)
        return HeartbeatData(client_id="c", consumer_data_set=[data]).encode() + b" " * blanks

    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, MINE) as peer:
            for group, size, code in (
                ("secret_group", LARGE_BODY, ResponseCode.NO_PERMISSION),
                ("mine_group", LARGE_BODY, ResponseCode.SUCCESS),
                ("secret_group", MOST_HEARTBEAT_BYTES, ResponseCode.SYSTEM_BUSY),
            ):
                reply = await peer.ask(Code.HEART_BEAT, {}, of(group, size))
                assert reply.code == code, reply
            assert broker.clients.consumers.groups.keys() == {"mine_group"}

    serve(tmp_path, script)
