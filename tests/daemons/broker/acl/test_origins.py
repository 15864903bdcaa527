"""The topic of origin of a failed message: clients cannot choose it."""

from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.batch import encode_batch
from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.codes import RequestCode as Code
from mq.protocol.codes import ResponseCode
from mq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from mq.protocol.message import Message, StoredMessage
from mq.protocol.properties import BROKERS_OWN, decode, encode
from tests.daemons.broker.acl.guarded import (
    MINE,
    SigningPeer,
    send_fields,
    serve,
)

GROUP = "mine_group"
RETRY = "%RETRY%mine_group"
CLAIMS = encode({"RETRY_TOPIC": "secret", "DLQ_ORIGIN_TOPIC": "secret", "own": "1"})


def in_first_version(fields: dict[str, str]) -> dict[str, str]:
    """The fields of SEND_MESSAGE for those of SEND_MESSAGE_V2."""
    return SendMessageRequestHeader(**vars(SendMessageRequestHeaderV2.decode(fields))).encode()


def stored_in(broker: Broker, topic: str) -> StoredMessage:
    """The first message of a topic, as stored."""
    message = broker.delivery.writer.read_entry(topic, 0, 0)
    assert message is not None
    return message


async def give_up(broker: Broker, peer: SigningPeer, message: StoredMessage) -> StoredMessage:
    """Send a message back without further retries; returns the dead letter."""
    back = {"group": GROUP, "offset": str(message.physical_offset), "delayLevel": "-1"}
    assert (await peer.ask(Code.CONSUMER_SEND_MSG_BACK, back)).code == ResponseCode.SUCCESS
    return stored_in(broker, f"%DLQ%{GROUP}")


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE])
def test_a_message_that_is_sent_back_has_its_original_topic(tmp_path: Path, code: Code) -> None:
    async def script(broker: Broker) -> None:
        await broker.stores.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        fields, body = send_fields("mine", properties=CLAIMS), b"forged"
        if code == Code.SEND_MESSAGE:
            fields = in_first_version(fields)
        elif code == Code.SEND_BATCH_MESSAGE:
            fields = {**send_fields("mine"), "m": "true"}
            one = Message("mine", body)
            one.system = decode(CLAIMS)
            body = encode_batch([one])
        async with SigningPeer(broker, MINE) as peer:
            assert (await peer.ask(code, fields, body)).code == ResponseCode.SUCCESS
            message = stored_in(broker, "mine")
            assert message.properties["own"] == "1"
            assert BROKERS_OWN.isdisjoint(message.properties)
            letter = await give_up(broker, peer, message)
            assert letter.properties["RETRY_TOPIC"] == "mine"

    serve(tmp_path, script)


def test_a_retry_topic_in_a_record_of_another_broker_is_ignored(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        await broker.stores.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        message = StoredMessage("mine", b"x", decode(CLAIMS), born_host=("127.0.0.1", 1))
        broker.delivery.writer.put(message)
        async with SigningPeer(broker, MINE) as peer:
            letter = await give_up(broker, peer, message)
            assert letter.properties["RETRY_TOPIC"] == "mine"

    serve(tmp_path, script)


@pytest.mark.parametrize("code", [Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2])
@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("mine", ResponseCode.SUCCESS),
        (None, ResponseCode.SUCCESS),
        (RETRY, ResponseCode.SUCCESS),
        ("secret", ResponseCode.NO_PERMISSION),
        ("%RETRY%secret_group", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
    ],
)
def test_a_retry_names_only_a_topic_that_its_sender_may_read(
    tmp_path: Path, code: Code, origin: str | None, expected: ResponseCode
) -> None:
    async def script(broker: Broker) -> None:
        await broker.stores.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        properties = encode({} if origin is None else {"RETRY_TOPIC": origin})
        fields = send_fields(RETRY, properties=properties)
        if code == Code.SEND_MESSAGE:
            fields = in_first_version(fields)
        async with SigningPeer(broker, MINE) as peer:
            assert (await peer.ask(code, fields, b"x")).code == expected
        if expected == ResponseCode.SUCCESS:
            assert stored_in(broker, RETRY).properties.get("RETRY_TOPIC") == origin
        else:
            assert broker.stores.messages.max_offset(RETRY, 0) == 0

    serve(tmp_path, script)


def test_a_message_cannot_name_the_origin_of_a_dead_letter(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        await broker.stores.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        fields = {**send_fields(RETRY, properties=CLAIMS), "j": "99"}
        async with SigningPeer(broker, MINE) as peer:
            assert (await peer.ask(Code.SEND_MESSAGE_V2, fields, b"x")).code != 0
            fields["i"] = encode({"DLQ_ORIGIN_TOPIC": "secret"})
            assert (await peer.ask(Code.SEND_MESSAGE_V2, fields, b"x")).code == 0
        letter = stored_in(broker, f"%DLQ%{GROUP}")
        assert "DLQ_ORIGIN_TOPIC" not in letter.properties

    serve(tmp_path, script)
