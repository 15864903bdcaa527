"""Pulls through a snode: its checks, the text of the subscription, long polls."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.daemons.broker.clients import client_handlers
from mq.daemons.broker.pull.long_polling import held_pulls
from mq.protocol.bodies import (
    MessageModel,
    SubscriptionGroupConfig,
)
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import decode_records
from tests import answered
from tests.daemons.broker.acl.guarded import send_fields
from tests.daemons.peer import Peer
from tests.daemons.snode.pulls import VERSION, heartbeat, pull
from tests.daemons.snode.world import ENODE, world
from tests.waiting import until


async def send(peer: Peer, body: bytes, tag: str = "") -> None:
    properties = f"TAGS\x01{tag}" if tag else ""
    fields = {**send_fields("T", 0, properties), "n": ENODE}
    assert (await peer.ask(RequestCode.SEND_MESSAGE_V2, fields, body)).code == 0


@answered.by_snode(
    RequestCode.PULL_MESSAGE, SnodeCode.SNODE_PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE
)
@pytest.mark.parametrize(
    "code",
    [
        *(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
        SnodeCode.SNODE_PULL_MESSAGE,
    ],
)
def test_the_subscription_of_the_heartbeat_applies_at_the_enode(tmp_path: Path, code: int) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await peer.ask(RequestCode.HEART_BEAT, None, heartbeat(expression="blue"))
            for body, tag in ((b"r", "red"), (b"b", "blue")):
                await send(peer, body, tag)
            reply = await peer.ask(code, pull())
            assert (reply.code, reply.fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "2")
            assert [m.body for m in decode_records(reply.body)] == [b"b"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"queueId": "-1"}, ResponseCode.SYSTEM_ERROR),
        ({"topic": "Other"}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"consumerGroup": "unknown"}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"subVersion": str(VERSION + 1)}, ResponseCode.SUBSCRIPTION_NOT_LATEST),
        ({"subVersion": str(VERSION - 1)}, ResponseCode.PULL_NOT_FOUND),
        ({"consumerGroup": "no such name!"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"enodeName": "nobody"}, ResponseCode.SERVICE_NOT_AVAILABLE),
        # with the subscription in the header no heartbeat is needed
        (
            {"consumerGroup": "u", "sysFlag": "4", "subscription": "*"},
            ResponseCode.PULL_NOT_FOUND,
        ),
    ],
)
def test_a_pull_is_checked_before_it_is_forwarded(
    tmp_path: Path, changed: dict[str, str], code: int
) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await peer.ask(RequestCode.HEART_BEAT, None, heartbeat())
            reply = await peer.ask(RequestCode.PULL_MESSAGE, pull(**changed))
            assert reply.code == code, reply

    asyncio.run(main())


def test_a_group_that_must_not_be_created_cannot_pull(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, autoCreateSubscriptionGroup="false") as one:
            async with Peer(one.port) as peer:
                reply = await peer.ask(RequestCode.PULL_MESSAGE, pull(sysFlag="4"))
                assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    asyncio.run(main())


@pytest.mark.parametrize(
    "config",
    [
        SubscriptionGroupConfig(group_name="g", consume_enable=False),
        SubscriptionGroupConfig(group_name="g", consume_broadcast_enable=False),
    ],
)
def test_a_group_without_permission_for_its_mode_cannot_pull(
    tmp_path: Path, config: SubscriptionGroupConfig
) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await one.broker.stores.groups.update(config)
            await one.snode.groups.read()
            body = heartbeat(model=MessageModel.BROADCASTING)
            await peer.ask(RequestCode.HEART_BEAT, None, body)
            reply = await peer.ask(RequestCode.PULL_MESSAGE, pull())
            assert reply.code == ResponseCode.NO_PERMISSION

    asyncio.run(main())


def test_a_suspended_pull_gets_the_next_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer, Peer(one.port) as producer:
            await one.make_topic("T")
            await peer.ask(RequestCode.HEART_BEAT, None, heartbeat())
            held = pull(sysFlag="2", suspendTimeoutMillis="60000")
            peer.writer.write(encode(Command(RequestCode.PULL_MESSAGE, held, opaque=99)))
            await peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
            await send(producer, b"late")
            reply = await peer.receive()
            assert [m.body for m in decode_records(reply.body)] == [b"late"]

    asyncio.run(main())


def test_an_enode_suspends_pulls_of_perhaps_disconnected_clients_briefly(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            fields = pull(sysFlag="6", subscription="*", suspendTimeoutMillis="3600000")
            peer.writer.write(encode(Command(RequestCode.PULL_MESSAGE, fields, opaque=1)))
            channels = one.broker.listener.channels
            await until(lambda: any(map(held_pulls, channels)))
            (held,) = (held for channel in channels for held in held_pulls(channel))
            assert held._timer.when() <= asyncio.get_running_loop().time() + 30

    asyncio.run(main())


def test_pulls_of_some_clients_do_not_break_those_of_others(tmp_path: Path) -> None:
    """They share a connection, and a broker closes one whose pulls take too much memory."""

    async def main() -> None:
        async with (
            world(tmp_path, pullConnections="1") as one,
            Peer(one.port) as peer,
            Peer(one.port) as producer,
            AsyncExitStack() as stack,
        ):
            await one.make_topic("T")
            waits = pull(sysFlag="6", subscription="*", suspendTimeoutMillis="20000")
            peer.writer.write(encode(Command(RequestCode.PULL_MESSAGE, waits, opaque=1)))
            await until(lambda: any(map(held_pulls, one.broker.listener.channels)))
            for number in range(15):
                other = await stack.enter_async_context(Peer(one.port))
                for again in range(5):  # each with a different expression of 60,000 characters
                    tags = "||".join(f"{number}x{again}x{tag:06}" for tag in range(5000))
                    fields = {**waits, "subscription": tags}
                    other.writer.write(encode(Command(RequestCode.PULL_MESSAGE, fields, opaque=1)))
                await other.writer.drain()
            # The last ones are not suspended.
            assert (await other.receive()).code == ResponseCode.PULL_NOT_FOUND
            await send(producer, b"late")
            reply = await peer.receive()
            assert [m.body for m in decode_records(reply.body)] == [b"late"]

    asyncio.run(main())


def test_an_offset_committed_by_a_pull_reaches_the_enode_and_is_known_here(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await peer.ask(RequestCode.HEART_BEAT, None, heartbeat())
            for body in (b"1", b"2"):
                await send(peer, body)
            await peer.ask(RequestCode.PULL_MESSAGE, pull(sysFlag="1", commitOffset="2"))
            assert one.snode.offsets.acked(ENODE, "T", "g", 0) == 2
            assert one.broker.stores.offsets.query("g", "T", 0) == 2
            assert one.snode.offsets.unsent == 0

    asyncio.run(main())


def test_a_pull_of_the_dialect_is_converted_for_enodes_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_handlers, "DIALECT_FIELD", "another")  # as brokers of Java reply

    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await send(peer, b"x")
            one.broker.listener.dispatcher.in_dialect.clear()
            fields = pull(sysFlag="4", subscription="*")
            for _ in range(2):  # before the dialect is known, and after
                reply = await peer.ask(SnodeCode.SNODE_PULL_MESSAGE, fields)
                assert [m.body for m in decode_records(reply.body)] == [b"x"]

    asyncio.run(main())


def test_a_consumer_with_a_large_lag_is_not_sent_to_a_slave(tmp_path: Path) -> None:
    async def main() -> None:
        slow = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
        async with world(tmp_path, brokers=slow) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            for _ in range(3):
                await send(peer, b"x" * 100)
            fields = pull(sysFlag="4", subscription="*", maxMsgNums="1")
            async with Peer(one.broker.port) as direct:
                suggested = await direct.ask(RequestCode.PULL_MESSAGE, fields)
            through = await peer.ask(RequestCode.PULL_MESSAGE, fields)
            assert suggested.fields["suggestWhichBrokerId"] == "1"
            assert through.fields["suggestWhichBrokerId"] == "0"

    asyncio.run(main())
