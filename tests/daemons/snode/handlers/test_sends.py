"""Sends through a snode: to the right enode, and every reply and failure back."""

import asyncio
import struct
from pathlib import Path

import pytest

from mq.protocol.batch import encode_batch
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import ONE_WAY, ROCKETMQ, Command
from mq.protocol.frame import encode
from mq.protocol.message import Message, StoredMessage, decode_records
from mq.protocol.message_id import decode_offset_id
from mq.protocol.native import native
from tests import answered
from tests.daemons.broker.acl.guarded import send_fields
from tests.daemons.peer import Peer
from tests.daemons.snode.world import ENODE, OTHER, World, broker_settings, world
from tests.waiting import until


@pytest.fixture(autouse=True, params=["native", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test with and without the native path through the snode."""
    if request.param == "python":
        monkeypatch.setattr("mq.daemons.snode.app.native", None)
    elif native is None:
        pytest.skip("the native path is not built")


def send(enode: str = ENODE, **changed: str) -> dict[str, str]:
    return {**send_fields("T"), "n": enode, **changed}


async def stored(one: World, enode: str, offset_id: str) -> StoredMessage:
    """A message as stored by its broker."""
    offset = decode_offset_id(offset_id).offset
    async with Peer(one.brokers[enode].port) as peer:
        reply = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
    (message,) = decode_records(reply.body)
    return message


@answered.by_snode(RequestCode.SEND_MESSAGE_V2)
def test_a_message_is_sent_to_the_enode_that_it_names(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, names=(ENODE, OTHER)) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            for enode in (ENODE, OTHER):
                reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, send(enode), enode.encode())
                assert (reply.code, reply.fields["queueId"]) == (ResponseCode.SUCCESS, "0")
                message = await stored(one, enode, reply.fields["msgId"])
                assert message.body == enode.encode()
                assert message.born_host == (peer.address.split(":")[0], int(peer.address[10:]))

    asyncio.run(main())


def test_the_address_that_a_client_claims_is_ignored(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            asked = send(o="10.9.9.9:99", p="10.9.9.9:98")
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, asked, b"x")
            message = await stored(one, ENODE, reply.fields["msgId"])
            assert message.born_host[0] == "127.0.0.1"

    asyncio.run(main())


def test_a_false_address_is_ignored_even_with_an_unchecked_signature(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            asked = send(o="10.9.9.9:99", AccessKey="who", Signature="ever")
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, asked, b"x")
            message = await stored(one, ENODE, reply.fields["msgId"])
            assert message.born_host[0] == "127.0.0.1"

    asyncio.run(main())


def test_messages_keep_their_order_while_their_enode_is_sought(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            enodes = one.snode.enodes
            enodes.masters = {}
            sent = 0
            while not enodes.masters or sent < 50:  # some before the enode is known, some after
                peer.writer.write(encode(Command(310, send(), b"", opaque=sent)))
                await peer.writer.drain()
                sent += 1
                await asyncio.sleep(0.001)  # it is refreshed every half second
            offsets = {}
            for _ in range(sent):
                answer = await peer.receive()
                offsets[answer.opaque] = int(answer.fields["queueOffset"])
            assert [offsets[number] for number in range(sent)] == list(range(sent))
            assert not one.snode.forwarding.has_waiting(ENODE)

    asyncio.run(main())


def test_a_name_server_that_was_just_started_ends_no_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            assert (await peer.ask(310, send(), b"x")).code == ResponseCode.SUCCESS
            routes = one.name_server.routes
            known = dict(routes.brokers)
            routes.brokers.clear()
            await one.snode.enodes.refresh()
            assert (await peer.ask(310, send(), b"x")).code == ResponseCode.SUCCESS
            routes.brokers.update(known)
            routes.brokers[ENODE].broker_addrs = {1: "127.0.0.1:1"}  # without a master
            await one.snode.enodes.refresh()
            assert one.snode.enodes.masters == {}

    asyncio.run(main())


@answered.by_snode(RequestCode.SEND_BATCH_MESSAGE)
def test_a_batch_is_stored_completely(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            body = encode_batch([Message("T", b"a"), Message("T", b"b")])
            reply = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, send(m="true"), body)
            assert reply.code == ResponseCode.SUCCESS
            assert len(reply.fields["msgId"].split(",")) == 2

    asyncio.run(main())


def test_two_clients_with_the_same_opaque_each_get_their_own_reply(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as first, Peer(one.port) as second:
            await one.make_topic("T")
            count = 50
            for number in range(count):
                for peer, queue in ((first, "1"), (second, "2")):
                    request = Command(310, send(e=queue), b"x", opaque=number)
                    peer.writer.write(encode(request))
            for peer, queue in ((first, "1"), (second, "2")):
                replies = [await peer.receive() for _ in range(count)]
                assert sorted(reply.opaque for reply in replies) == list(range(count))
                assert {reply.fields["queueId"] for reply in replies} == {queue}

    asyncio.run(main())


def test_a_request_in_binary_is_answered_in_binary(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            request = Command(310, send(), b"x", opaque=7, serialization=ROCKETMQ)
            peer.writer.write(encode(request))
            reply = await peer.receive()
            assert (reply.code, reply.opaque, reply.serialization) == (0, 7, ROCKETMQ)

    asyncio.run(main())


def test_a_refusal_of_the_enode_is_relayed_with_its_code(tmp_path: Path) -> None:
    async def main() -> None:
        small = {"maxMessageSize": "10"}
        async with world(tmp_path, brokers=small) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, send(), b"x" * 11)
            assert reply.code == ResponseCode.MESSAGE_ILLEGAL
            assert "maxMessageSize" in (reply.remark or "")

    asyncio.run(main())


def test_an_unknown_enode_is_reported_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, send("nobody"), b"x")
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "nobody" in (reply.remark or "")

    asyncio.run(main())


def test_an_enode_that_stopped_is_reported_and_found_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            assert (await peer.ask(310, send(), b"x")).code == ResponseCode.SUCCESS
            port = str(one.broker.port)
            await one.broker.__aexit__(None, None, None)
            reply = await peer.ask(310, send(), b"x")
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            again = broker_settings(tmp_path, ENODE, one.name_server.address, listenPort=port)
            from mq.daemons.broker.app import Broker

            async with Broker(again):
                while (await peer.ask(310, send(), b"x")).code != ResponseCode.SUCCESS:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    asyncio.run(main())


def test_a_later_broker_is_found_by_the_first_request_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            from mq.daemons.broker.app import Broker

            async with Broker(broker_settings(tmp_path, OTHER, one.name_server.address)):
                fields = send(OTHER, b="TopicOfOther")
                while (await peer.ask(310, fields, b"x")).code != ResponseCode.SUCCESS:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                assert OTHER in one.snode.enodes.masters

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "code"),
    [({}, ResponseCode.SERVICE_NOT_AVAILABLE), ({"defaultEnode": OTHER}, ResponseCode.SUCCESS)],
)
def test_a_request_that_names_no_enode_of_two_needs_a_default(
    tmp_path: Path, settings: dict[str, str], code: int
) -> None:
    async def main() -> None:
        async with world(tmp_path, names=(ENODE, OTHER), snode_is=settings) as one:
            async with Peer(one.port) as peer:
                await one.make_topic("T")
                fields = send_fields("T")
                assert (await peer.ask(310, fields, b"x")).code == code

    asyncio.run(main())


def test_a_port_stands_for_its_enode(tmp_path: Path) -> None:
    async def main() -> None:
        ports = f"{ENODE}:0;{OTHER}:0"
        async with world(tmp_path, names=(ENODE, OTHER), enodePorts=ports) as one:
            await one.make_topic("T")
            for enode, listener in one.snode.stand_in_listeners.items():
                async with Peer(listener.port) as peer:
                    reply = await peer.ask(310, send_fields("T"), b"x")
                    assert (await stored(one, enode, reply.fields["msgId"])).body == b"x"

    asyncio.run(main())


def test_a_one_way_message_is_stored_and_not_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            peer.writer.write(encode(Command(310, send(), b"x", opaque=1, flag=ONE_WAY)))
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, send(), b"y")
            assert (reply.opaque, reply.fields["queueOffset"]) == (1, "1")
            assert one.snode.forwarding.in_flight == 0  # nothing waits in vain

    asyncio.run(main())


@answered.by_snode(RequestCode.CONSUMER_SEND_MSG_BACK)
def test_a_message_that_was_not_consumed_is_delivered_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            sent = await peer.ask(RequestCode.SEND_MESSAGE_V2, send(), b"x")
            offset = decode_offset_id(sent.fields["msgId"]).offset
            one.snode.groups.find("g")
            fields = {"offset": str(offset), "group": "g", "delayLevel": "1", "enodeName": ENODE}
            fields |= {"originTopic": "T", "maxReconsumeTimes": "16"}
            reply = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
            assert reply.code == ResponseCode.SUCCESS, reply

    asyncio.run(main())


def test_a_request_that_snodes_do_not_serve_is_not_supported(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            for code in (RequestCode.END_TRANSACTION, RequestCode.UPDATE_BROKER_CONFIG, 10):
                reply = await peer.ask(code, {})
                assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(main())


def test_a_disconnected_client_gets_no_reply(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one:
            await one.make_topic("T")
            async with Peer(one.port) as peer:
                for number in range(20):
                    peer.writer.write(encode(Command(310, send(), b"x", opaque=number)))
                await peer.writer.drain()
            await until(lambda: not one.snode.listener.channels)
            await until(lambda: one.snode.forwarding.in_flight == 0)

    asyncio.run(main())


def test_an_invalid_reply_fails_the_waiting_requests(tmp_path: Path) -> None:
    """An enode that sends garbage: the connection ends, and every waiting client gets an error."""

    async def main() -> None:
        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(struct.pack(">i", -5) + b"xxxx")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with world(tmp_path) as one, Peer(one.port) as peer:
            one.pretend("odd", port)
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, send("odd"), b"x")
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        server.close()
        await server.wait_closed()

    asyncio.run(main())


def test_a_request_at_an_enode_that_hangs_times_out(tmp_path: Path) -> None:
    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with world(tmp_path, enodeRequestTimeout="300") as one, Peer(one.port) as peer:
            one.pretend("hung", port)
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, send("hung"), b"x")
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert one.snode.forwarding.failures[310] == 1
        server.close()
        await server.wait_closed()

    asyncio.run(main())
