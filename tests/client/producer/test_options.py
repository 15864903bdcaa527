"""Options of producers, the same as Java's, with our own daemons or scripted ones."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from mq.client.errors import ClientError
from mq.client.producer.producer import Producer, SendStatus
from mq.daemons.channel import Channel
from mq.daemons.standalone import Standalone
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.client.clusters import TOPIC, cluster
from tests.client.scripted import accept_heartbeats, name_server, scripted, stores
from tests.interop.ports import free_port


def test_a_producer_has_its_own_limit_for_bodies() -> None:
    async def scenario() -> None:
        async with cluster() as there, Producer(there.address, max_body=10) as producer:
            await producer.send(Message(TOPIC, b"x" * 10))
            with pytest.raises(ClientError, match="11 bytes is over the limit of 10"):
                await producer.send(Message(TOPIC, b"x" * 11))
            with pytest.raises(ClientError, match="over the limit of 10: split it"):
                await producer.send_batch([Message(TOPIC, b"x" * 9), Message(TOPIC, b"x" * 9)])

    asyncio.run(scenario())


@pytest.mark.parametrize("again", [False, True])
def test_unsafely_stored_messages_are_retried_at_another_broker_on_request(
    again: bool,
) -> None:
    asked: Counter[str] = Counter()

    def unsafe(request: Command, channel: Channel) -> Command:
        asked["unsafe"] += 1
        place = {"msgId": "0" * 32, "queueId": request.fields["e"], "queueOffset": "0"}
        return request.reply(ResponseCode.FLUSH_DISK_TIMEOUT, place)

    async def scenario() -> None:
        unsafe_broker = {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: unsafe}
        async with (
            scripted(stores("safe", asked)) as safe,
            scripted(unsafe_broker) as slow,
            scripted(name_server({"safe": safe, "unsafe": slow})) as namesrv,
            Producer(namesrv, retry_not_stored=again) as producer,
        ):
            results = [await producer.send(Message(TOPIC, b"1")) for _ in range(8)]
            statuses = {result.status for result in results}
            expected = {SendStatus.SEND_OK} if again else {*statuses}
            assert statuses == expected
            assert len(statuses) == (1 if again else 2)
        async with (
            scripted(unsafe_broker) as slow,
            scripted(name_server({"unsafe": slow})) as namesrv,
            Producer(namesrv, retry_not_stored=again) as producer,
        ):
            before = asked["unsafe"]
            result = await producer.send(Message(TOPIC, b"1"))
            assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
            assert asked["unsafe"] - before == (3 if again else 1)

    asyncio.run(scenario())


def test_the_vip_channel_takes_messages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Standalone(tmp_path, name_server_port=0, broker_port=free_port()) as pair:
            async with Producer(pair.name_server_address, vip_channel=True) as producer:
                await producer.send(Message(TOPIC, b"1"))
                host, _, port = pair.broker.address.rpartition(":")
                assert producer.session.is_connected(f"{host}:{int(port) - 2}")

    asyncio.run(scenario())
