"""A broker with snodes: connections that use its dialect beside those that do not."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.bodies import HeartbeatData
from mq.protocol.bodies.mapping import TopicConfigAndQueueMapping
from mq.protocol.codes import DIALECT_FIELD, RequestCode, ResponseCode, SnodeCode
from mq.protocol.headers.snode import CreateRetryTopicRequestHeader
from mq.protocol.message import decode_records
from tests import answered
from tests.daemons.broker.acl import guarded
from tests.daemons.broker.acl.guarded import ADMIN, MINE, Account, SigningPeer
from tests.daemons.broker.groups.members import HEARTBEAT
from tests.daemons.broker.harness import Harness, create_topic, serve
from tests.daemons.peer import Peer

SEND = guarded.send_fields("T")


async def open_dialect(peer: Peer) -> None:
    reply = await peer.ask(RequestCode.HEART_BEAT, None, HEARTBEAT.encode())
    assert (reply.code, reply.fields.get(DIALECT_FIELD)) == (ResponseCode.SUCCESS, "snode")


def pull(group: str = "g", **changed: str) -> dict[str, str]:
    return {**guarded.pull_fields("T", group), "sysFlag": "0", **changed}


@answered.by_broker_of_snodes(SnodeCode.SNODE_PULL_MESSAGE, SnodeCode.CREATE_RETRY_TOPIC)
def test_a_code_has_the_meaning_of_its_connections_dialect(tmp_path: Path) -> None:
    async def script(broker: Harness, ordinary: Peer) -> None:
        await create_topic(ordinary, "T")
        async with Peer(broker.port) as snode:
            await open_dialect(snode)
            await ordinary.ask(RequestCode.SEND_MESSAGE_V2, SEND, b"hello")
            pulled = await snode.ask(SnodeCode.SNODE_PULL_MESSAGE, pull())
            assert [m.body for m in decode_records(pulled.body)] == [b"hello"]
            config = await ordinary.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
            assert TopicConfigAndQueueMapping.decode(config.body).topic_name == "T"
            made = await snode.ask(
                SnodeCode.CREATE_RETRY_TOPIC, CreateRetryTopicRequestHeader(group_name="g2")
            )
            assert made.code == ResponseCode.SUCCESS
            assert broker.stores.topics.get("%RETRY%g2") is not None
            exported = {"configType": "topics", "groupName": "g3"}
            reply = await ordinary.ask(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, exported)
            assert reply.code == ResponseCode.SUCCESS
            assert broker.stores.topics.get("%RETRY%g3") is None

    serve(tmp_path, script)


def test_codes_that_are_equal_in_both_work_in_the_dialect(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T")
        await open_dialect(peer)
        sent = await peer.ask(RequestCode.SEND_MESSAGE_V2, {**SEND, "n": "broker-a"}, b"hello")
        assert sent.code == ResponseCode.SUCCESS
        fields = pull(sysFlag="4", enodeName="broker-a")
        assert (await peer.ask(RequestCode.PULL_MESSAGE, fields)).code == ResponseCode.SUCCESS

    serve(tmp_path, script)


def test_a_heartbeat_without_a_snode_does_not_change_the_dialect(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.HEART_BEAT, None, HeartbeatData(client_id="c").encode())
        assert DIALECT_FIELD not in reply.fields
        reply = await peer.ask(SnodeCode.SNODE_PULL_MESSAGE, pull())
        assert "GetTopicConfigRequestHeader" in (reply.remark or "") or reply.code == 17

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ({"o": "10.1.2.3:4567"}, ("10.1.2.3", 4567)),
        ({"o": "[2001:db8::1]:4567"}, ("2001:db8::1", 4567)),
        ({"o": "nobody:1"}, None),
        ({"o": "10.1.2.3:70000"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("properties", ["", "DELAY\x012"])
def test_the_snode_provides_the_address_of_the_sender(
    tmp_path: Path, said: Mapping[str, str], stored: tuple[str, int] | None, properties: str
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T")
        await open_dialect(peer)
        sent = await peer.ask(RequestCode.SEND_MESSAGE_V2, {**SEND, "i": properties, **said}, b"x")
        assert sent.code == ResponseCode.SUCCESS, sent
        (message,) = [
            found
            for at in (sent.fields["msgId"],)
            for found in decode_records(
                (
                    await peer.ask(
                        RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(int(at[16:], 16))}
                    )
                ).body
            )
        ]
        host, _, port = peer.address.rpartition(":")
        assert message.born_host == (stored or (host, int(port)))

    serve(tmp_path, script)


def test_without_the_dialect_a_given_sender_address_is_ignored(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T")
        await peer.ask(RequestCode.SEND_MESSAGE_V2, {**SEND, "o": "10.1.2.3:4567"}, b"x")
        reply = await peer.ask(RequestCode.PULL_MESSAGE, pull(sysFlag="4"))
        (message,) = decode_records(reply.body)
        assert message.born_host[0] == "127.0.0.1"

    serve(tmp_path, script)


@pytest.mark.parametrize(("who", "trusted"), [(ADMIN, True), (MINE, False)])
def test_with_access_control_the_dialect_is_for_administrators(
    tmp_path: Path, who: Account, trusted: bool
) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, who) as peer:
            reply = await peer.ask(RequestCode.HEART_BEAT, None, HEARTBEAT.encode())
            assert reply.code == ResponseCode.SUCCESS
            assert (DIALECT_FIELD in reply.fields) is trusted
            made = await peer.ask(
                SnodeCode.CREATE_RETRY_TOPIC, CreateRetryTopicRequestHeader(group_name="g")
            )
            assert (broker.stores.topics.get("%RETRY%g") is not None) is trusted
            assert (made.code == ResponseCode.SUCCESS) is trusted

    guarded.serve(tmp_path, script)


def test_each_request_of_a_snode_is_signed_by_an_administrator(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, ADMIN) as peer:
            await open_dialect(peer)
            for account in (None, MINE):
                peer.account = account
                reply = await peer.ask(
                    SnodeCode.CREATE_RETRY_TOPIC, CreateRetryTopicRequestHeader(group_name="g")
                )
                assert reply.code == ResponseCode.NO_PERMISSION
            assert broker.stores.topics.get("%RETRY%g") is None

    guarded.serve(tmp_path, script)
