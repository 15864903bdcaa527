"""System topics: permissions of clients there, and properties of clients that are ignored."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.batch import encode_batch
from mq.protocol.codes import RequestCode as Code
from mq.protocol.codes import ResponseCode
from mq.protocol.message import Message, StoredMessage, encode_record
from mq.protocol.message_id import decode_offset_id, encode_offset_id
from mq.protocol.names import is_internal_topic, may_be_sent_to
from tests.daemons.broker.acl.guarded import pull_fields, send_fields
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.transactions.producers import kept
from tests.daemons.peer import Peer

INTERNAL = (
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "CHECKPOINT_TOPIC",
    "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    "rmq_sys_of_the_future",
)
ONLY_READ = ("TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC")
OPEN = ("RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn", "BenchmarkTest", "TBW102", "orders")
V1 = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag")
LETTERS = dict(zip("abcdef", V1, strict=True)) | {"g": "bornTimestamp", "h": "flag"}


def run(root: Path, script: Callable[[Broker, Peer], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        async with broker_on(root, **settings) as broker, Peer(broker.port) as peer:
            for topic in (*INTERNAL, *ONLY_READ, *OPEN):  # as if they had been added to the file
                broker.stores.topics.create_internal(topic, 2)
            await script(broker, peer)

    asyncio.run(main())


async def codes_of_sends(peer: Peer, topic: str) -> set[int]:
    """The reply to each way to send to a topic."""
    second = send_fields(topic)
    first = {LETTERS[letter]: value for letter, value in second.items() if letter in LETTERS}
    batch = encode_batch([Message(topic, b"x")])
    replies = [
        await peer.ask(Code.SEND_MESSAGE, first, b"x"),
        await peer.ask(Code.SEND_MESSAGE_V2, second, b"x"),
        await peer.ask(Code.SEND_BATCH_MESSAGE, {**second, "m": "true"}, batch),
        await peer.ask(Code.SEND_MESSAGE_V2, {**second, "i": "DELAY\x011"}, b"x"),
        await peer.ask(Code.SEND_MESSAGE_V2, {**second, "i": "TIMER_DELAY_SEC\x019"}, b"x"),
        await peer.ask(Code.SEND_MESSAGE_V2, {**second, "i": "TRAN_MSG\x01true"}, b"x"),
        await peer.ask(Code.SEND_REPLY_MESSAGE, first, b"x"),
        await peer.ask(Code.SEND_REPLY_MESSAGE_V2, second, b"x"),
    ]
    # A reply without a waiting client is answered with SYSTEM_ERROR, but stored.
    return {reply.code for reply in replies} - {ResponseCode.SYSTEM_ERROR}


@pytest.mark.parametrize("topic", [*INTERNAL, *ONLY_READ])
def test_only_the_broker_writes_its_topics(tmp_path: Path, topic: str) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        assert await codes_of_sends(peer, topic) == {ResponseCode.NO_PERMISSION}
        assert broker.stores.messages.max_offset(topic, 0) == 0
        assert not may_be_sent_to(topic)

    run(tmp_path, script)


@pytest.mark.parametrize("topic", OPEN)
def test_clients_send_to_topics_for_them(tmp_path: Path, topic: str) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        assert await codes_of_sends(peer, topic) == {ResponseCode.SUCCESS}
        reply = await peer.ask(Code.PULL_MESSAGE, pull_fields(topic, "g"))
        assert reply.code == ResponseCode.SUCCESS and reply.body

    run(tmp_path, script, transactionCheckInterval="3600000")


@pytest.mark.parametrize("topic", [*INTERNAL, *ONLY_READ, *OPEN])
def test_clients_read_topics_without_internal_data(tmp_path: Path, topic: str) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        pull = pull_fields(topic, "g")
        pop = {
            **{"consumerGroup": "g", "topic": topic, "queueId": "-1", "maxMsgNums": "1"},
            **{"invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0"},
        }
        found = {
            (await peer.ask(code, fields)).code == ResponseCode.NO_PERMISSION
            for code, fields in (
                (Code.PULL_MESSAGE, pull),
                (Code.LITE_PULL_MESSAGE, pull),
                (Code.POP_MESSAGE, {**pop, "bornTime": str(1 << 50)}),
                (Code.PEEK_MESSAGE, pop),
                (Code.NOTIFICATION, pop),
                (Code.POLLING_INFO, pop),
            )
        }
        assert found == {topic in INTERNAL}
        assert is_internal_topic(topic) == (topic in INTERNAL)

    run(tmp_path, script)


def test_requests_with_an_internal_topic_change_no_offset_there(tmp_path: Path) -> None:
    """By them transactions and popped messages are found after a start."""

    async def script(broker: Broker, peer: Peer) -> None:
        half = "RMQ_SYS_TRANS_HALF_TOPIC"
        for group, topic in (("CID_RMQ_SYS_TRANS", half), ("g", half), ("CID_RMQ_SYS_X", "orders")):
            fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "9"}
            reply = await peer.ask(Code.UPDATE_CONSUMER_OFFSET, fields)
            assert reply.code == ResponseCode.NO_PERMISSION
            assert broker.stores.offsets.query(group, topic, 0) == -1
        clone = {"srcGroup": "g", "destGroup": "CID_RMQ_SYS_TRANS", "topic": half}
        assert (await peer.ask(Code.CLONE_GROUP_OFFSET, clone)).code == ResponseCode.NO_PERMISSION
        broker.stores.offsets.commit("CID_RMQ_SYS_TRANS", half, 0, 7)
        delete = {"groupName": "CID_RMQ_SYS_TRANS", "cleanOffset": "true"}
        reply = await peer.ask(Code.DELETE_SUBSCRIPTIONGROUP, delete)
        assert reply.code == ResponseCode.NO_PERMISSION
        assert broker.stores.offsets.query("CID_RMQ_SYS_TRANS", half, 0) == 7

    run(tmp_path, script)


CLAIMS = (
    "REAL_TOPIC\x01victim\x02REAL_QID\x012147483648\x02TRANSACTION_CHECK_TIMES\x0199"
    "\x02TRAN_PREPARED_QUEUE_OFFSET\x010\x02POP_CK\x01forged\x02TIMER_ROLL_TIMES\x0199\x02own\x01v"
)


def test_properties_that_only_a_broker_sets_are_ignored(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        fields = send_fields("orders", 1)
        await peer.ask(Code.SEND_MESSAGE_V2, {**fields, "i": CLAIMS, "e": "0"}, b"plain")
        inner = CLAIMS.encode()
        batch = struct.pack(">i8xii", 23 + len(inner), 0, 1) + b"x"
        batch += struct.pack(">h", len(inner)) + inner
        await peer.ask(
            Code.SEND_BATCH_MESSAGE, {**fields, "e": "0", "i": CLAIMS, "m": "true"}, batch
        )
        for extra in ("DELAY\x0118", "TIMER_DELAY_SEC\x01999", "TRAN_MSG\x01true\x02PGROUP\x01P"):
            text = f"{CLAIMS}\x02{extra}"
            reply = await peer.ask(Code.SEND_MESSAGE_V2, {**fields, "i": text}, b"waits")
            assert reply.code == ResponseCode.SUCCESS, reply
        messages = kept(broker, "orders")
        assert len(messages) == 2
        for message in messages:
            assert message.properties.keys() - {"own", "CLUSTER", "WAIT"} == set()
        broker.stores.messages.appender.commit()
        for topic in ("rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"):
            (waiting,) = kept(broker, topic)
            assert waiting.properties["REAL_TOPIC"] == "orders"
            assert waiting.properties["REAL_QID"] == "1"
            assert "TRANSACTION_CHECK_TIMES" not in waiting.properties

    run(tmp_path, script, transactionCheckInterval="3600000")


def test_a_message_recalls_only_one_of_its_own_topic(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        for named, code in (
            ("victim+ID", ResponseCode.NO_PERMISSION),
            ("orders+ID", ResponseCode.SUCCESS),
            ("ID", ResponseCode.SUCCESS),
        ):
            text = f"TIMER_DEL_UNIQKEY\x01{named}\x02TIMER_DELAY_SEC\x01999"
            fields = send_fields("orders", properties=text)
            reply = await peer.ask(Code.SEND_MESSAGE_V2, fields, b"x")
            assert reply.code == code, reply
        orders = [m.properties["TIMER_DEL_UNIQKEY"] for m in kept(broker, "rmq_sys_wheel_timer")]
        assert orders == ["orders+ID", "orders+ID"]

    run(tmp_path, script)


def test_only_readable_messages_are_sent_back(tmp_path: Path) -> None:
    """A record inside a body, or in a system topic."""

    async def script(broker: Broker, peer: Peer) -> None:
        plain = await peer.ask(Code.SEND_MESSAGE_V2, send_fields("orders"), b"plain")
        offset = decode_offset_id(plain.fields["msgId"]).offset
        record = broker.stores.messages.record_at(offset)
        assert record is not None
        reply = await peer.ask(Code.SEND_MESSAGE_V2, send_fields("orders"), bytes(record))
        outer = decode_offset_id(reply.fields["msgId"]).offset
        outer_record = broker.stores.messages.record_at(outer)
        assert outer_record is not None
        forged = outer + outer_record.index(record)
        await peer.ask(Code.SEND_MESSAGE_V2, send_fields("orders", 0, "DELAY\x0118"), b"later")
        delayed = kept_at(broker, "SCHEDULE_TOPIC_XXXX", 17)
        for place, code in (
            (offset, ResponseCode.SUCCESS),
            (forged, ResponseCode.SYSTEM_ERROR),
            (delayed, ResponseCode.SYSTEM_ERROR),
        ):
            fields = {"offset": str(place), "group": "g", "delayLevel": "1"}
            reply = await peer.ask(Code.CONSUMER_SEND_MSG_BACK, fields)
            assert reply.code == code, (place, reply)

    run(tmp_path, script)


@pytest.mark.parametrize("code", [Code.RESUME_CHECK_HALF_MESSAGE, Code.CONSUME_MESSAGE_DIRECTLY])
def test_a_record_inside_a_body_is_not_a_message(tmp_path: Path, code: Code) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        properties = {"REAL_TOPIC": "victim", "REAL_QID": "0", "PGROUP": "P"}
        made = encode_record(StoredMessage("TRANS_CHECK_MAX_TIME_TOPIC", b"x", properties))
        sent = await peer.ask(Code.SEND_MESSAGE_V2, send_fields("orders"), made)
        outer = decode_offset_id(sent.fields["msgId"])
        record = broker.stores.messages.record_at(outer.offset)
        assert record is not None
        forged = encode_offset_id(outer.host, outer.port, outer.offset + record.index(made))
        fields = {"msgId": forged, "consumerGroup": "g", "clientId": "c"}
        reply = await peer.ask(code, fields)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "does not exist here" in (reply.remark or "") or "can not find" in str(reply.remark)
        assert broker.delivery.transactions.ledger.offsets() == []

    run(tmp_path, script)


def test_an_internal_topic_is_neither_created_nor_recalled_from(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        for topic in INTERNAL:
            assert broker.stores.topics.is_system(topic)
            fields = {"topic": topic, "recallHandle": "x", "producerGroup": "P"}
            reply = await peer.ask(Code.RECALL_MESSAGE, fields)
            assert reply.code == ResponseCode.NO_PERMISSION, reply
            assert "own" in (reply.remark or "")

    run(tmp_path, script, recallMessageEnable="true")


def kept_at(broker: Broker, topic: str, queue_id: int) -> int:
    entry = broker.stores.messages.entries.at(topic, queue_id, 0)
    assert entry is not None
    return entry[0]
