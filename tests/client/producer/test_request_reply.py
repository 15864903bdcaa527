"""Requests and replies between clients, over a real broker."""

import asyncio
import time
from pathlib import Path

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.errors import ClientError, RemoteSystemError, ReplyTimeout
from mq.client.producer.producer import Producer
from mq.client.producer.request_reply import make_reply
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message, StoredMessage
from tests.client.brokers import Served, served
from tests.waiting import until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def take_request(at: Served, topic: str) -> StoredMessage:
    """Return the first message of a topic, once there is one."""
    async with Session(at.namesrv) as session:
        puller = PullConsumer(session)
        async with asyncio.timeout(20):
            while True:
                for queue in await puller.queues(topic):
                    async for message in puller.read(queue):
                        return message
                await asyncio.sleep(0.02)


def test_a_request_gets_the_reply_that_a_consumer_sends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as at, Producer(at.namesrv, "repliers") as replier:

            async def listener(request: StoredMessage) -> None:
                await replier.reply(request, request.body * 3000, properties={"own": "x"})

            async with (
                Consumer(
                    at.namesrv, "servers", {"Ask": "*"}, listener=listener, consume_from=FIRST
                ),
                Producer(at.namesrv, "askers") as asker,
            ):
                replies = await asyncio.gather(
                    *(asker.request(Message("Ask", b"%d" % n), 20) for n in range(10))
                )
                bodies = [reply.body for reply in replies]
                assert bodies == [b"%d" % n * 3000 for n in range(10)]
                reply = replies[0]
                assert reply.properties["own"] == "x"
                assert reply.properties["MSG_TYPE"] == "reply"
                assert reply.topic == "DefaultCluster_REPLY_TOPIC"
                arrived = int(reply.properties["ARRIVE_TIME"])
                assert int(reply.properties["PUSH_REPLY_TIME"]) <= arrived
                # Replies are stored, too, after they were pushed.
                store = at.broker.stores.messages
                await until(lambda: store.max_offset("DefaultCluster_REPLY_TOPIC", 0) == 10)
                stored = await take_request(at, "DefaultCluster_REPLY_TOPIC")
                assert stored.body in bodies

    asyncio.run(scenario())


def test_replies_are_not_stored_if_that_is_disabled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            served(tmp_path, storeReplyMessageEnable="false") as at,
            Producer(at.namesrv, "askers") as asker,
            Producer(at.namesrv, "repliers") as replier,
        ):
            asked = asyncio.create_task(asker.request(Message("Ask", b"?"), 20))
            sent = await replier.reply(await take_request(at, "Ask"), b"!")
            assert sent.offset_message_id == "0"
            assert (await asked).body == b"!"
            assert at.broker.stores.messages.max_offset("DefaultCluster_REPLY_TOPIC", 0) == 0

    asyncio.run(scenario())


def test_a_request_without_a_reply_fails_in_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as at, Producer(at.namesrv, "askers") as asker:
            began = time.monotonic()
            with pytest.raises(ReplyTimeout, match=r"no consumer replied within 0\.3 s"):
                await asker.request(Message("Ask", b"?"), 0.3)
            assert time.monotonic() - began >= 0.3
            # Late replies have no receiver, and do no harm.
            async with Producer(at.namesrv, "repliers") as replier:
                await replier.reply(await take_request(at, "Ask"), b"late")
            request = asyncio.create_task(asker.request(Message("Again", b"?"), 20))
            async with Producer(at.namesrv, "repliers") as replier:
                await replier.reply(await take_request(at, "Again"), b"in time")
            assert (await request).body == b"in time"

    asyncio.run(scenario())


def test_a_reply_to_a_closed_client_fails(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as at, Producer(at.namesrv, "repliers") as replier:
            async with Producer(at.namesrv, "askers") as asker:
                with pytest.raises(ReplyTimeout):
                    await asker.request(Message("Ask", b"?"), 0.2)
            request = await take_request(at, "Ask")
            with pytest.raises(RemoteSystemError, match=r"channel of <.*> not found"):
                await replier.reply(request, b"!")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "c"}, "cluster"),
        ({"CLUSTER": "c", "REPLY_TO_CLIENT": "c"}, "CORRELATION_ID"),
        ({"CLUSTER": "c"}, "CORRELATION_ID and REPLY_TO_CLIENT"),
    ],
)
def test_only_requests_have_replies(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ClientError, match=text):
        make_reply(StoredMessage("T", b"x", properties), b"!")


def test_a_reply_has_the_properties_of_its_request() -> None:
    asked = {"CLUSTER": "c", "REPLY_TO_CLIENT": "me", "CORRELATION_ID": "1", "TTL": "3000"}
    reply = make_reply(StoredMessage("T", b"x", asked), b"!")
    assert reply.topic == "c_REPLY_TOPIC"
    assert reply.system == {
        **{"MSG_TYPE": "reply", "REPLY_TO_CLIENT": "me", "CORRELATION_ID": "1", "TTL": "3000"}
    }
