import zlib

import pytest

from mq.client.admin import Admin
from mq.client.operations.errors import NotFound
from mq.client.operations.messages import lookup
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.finding import Reach
from mq.client.operations.messages.search import Search, SearchQuery
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.message import Message, StoredMessage, encode_record
from tests.client.clusters import TOPIC, Cluster, cluster
from tests.client.scenarios import eventually, in_a_loop, opened
from tests.client.scripted import name_server, routed, scripted

QUEUE = MessageQueue(TOPIC, "broker-a", 1)


@opened(cluster)
async def test_a_message_is_found_by_each_of_its_ids_by_key_and_by_place(made: Cluster) -> None:
    sent = await made.producer.send(Message(TOPIC, b"body", "tag", ["key"]), QUEUE)

    async def is_indexed() -> bool:
        return bool(await lookup.by_key(made.admin, TOPIC, "key"))

    await eventually(is_indexed)
    for found in (
        (await lookup.by_id(made.admin, sent.message_id, TOPIC)).messages,
        (await lookup.anywhere(made.admin, sent.message_id, bool, Reach())).messages,
        (await lookup.anywhere(made.admin, sent.offset_message_id, bool, Reach())).messages,
        await lookup.by_key(made.admin, TOPIC, "key"),
        (await lookup.at_offset(made.session, QUEUE, 0)).messages,
    ):
        (message,) = found
        assert (message.body, message.broker_name, message.queue_id) == (b"body", "broker-a", 1)


@opened(cluster)
async def test_what_is_not_there_is_not_found_and_says_what_is(made: Cluster) -> None:
    with pytest.raises(NotFound, match="is empty"):
        await lookup.at_offset(made.session, QUEUE, 0)
    await made.producer.send(Message(TOPIC, b"body"), QUEUE)
    with pytest.raises(NotFound, match="holds 0 to 0"):
        await lookup.at_offset(made.session, QUEUE, 7)
    with pytest.raises(NotFound, match="no message 'none' in topic topic"):
        await lookup.by_id(made.admin, "none", TOPIC)


@opened(cluster)
async def test_an_id_is_looked_for_as_far_as_is_said_and_what_is_left_is_counted(
    made: Cluster,
) -> None:
    sent = await made.producer.send(Message(TOPIC, b"body"), QUEUE)

    async def is_indexed() -> bool:
        return bool(await made.admin.find_by_unique_id(TOPIC, sent.message_id))

    await eventually(is_indexed)
    later = [f"zz{number}" for number in range(5)]
    for name in later:
        await made.admin.create_topic(made.pair.broker.address, TopicConfig(topic_name=name))
        await routed(made.session, name)

    def sees(topic: str) -> bool:
        return topic == TOPIC or topic in later

    everything = await lookup.anywhere(made.admin, sent.message_id, sees, Reach())
    assert (len(everything.messages), everything.unseen) == (1, 0)
    some = await lookup.anywhere(made.admin, sent.message_id, sees, Reach(requests=2))
    assert (len(some.messages), some.unseen) == (1, 4)
    with pytest.raises(NotFound, match=r"in the 2 topics that .*; not searched: 4 topics"):
        await lookup.anywhere(made.admin, "none", sees, Reach(requests=2))
    with pytest.raises(NotFound, match="not searched: 6 topics"):
        await lookup.anywhere(made.admin, "none", sees, Reach(seconds=0))


@opened(cluster)
async def test_an_offset_id_does_not_choose_whom_we_connect_to(made: Cluster) -> None:
    elsewhere = "7F000001" + "00000001" + "0" * 16  # 127.0.0.1:1
    with pytest.raises(NotFound):
        await lookup.by_id(made.admin, elsewhere, TOPIC)


@opened(cluster)
async def test_messages_that_grow_are_found_but_not_unpacked_beyond_the_bound(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MOST_BYTES", 1_000_000)
    for _ in range(2):
        message = Message(TOPIC, bytes(900_000), keys=["bomb"])
        await made.producer.send(message, QUEUE)

    async def are_indexed() -> bool:
        return len(await lookup.by_key(made.admin, TOPIC, "bomb")) == 2

    await eventually(are_indexed)
    first, second = await lookup.by_key(made.admin, TOPIC, "bomb")
    assert first.sys_flag & SysFlag.COMPRESSED and len(first.body) == 900_000
    assert second.body_error and zlib.decompress(second.body) == bytes(900_000)
    found = await Search(made.session, SearchQuery(Choice(TOPIC), text="\0" * 64), keep=10).run()
    assert [(len(hit.message.body), hit.size) for hit in found.hits] == [(10, 900_000)] * 2


@in_a_loop
async def test_messages_say_their_broker_where_that_has_an_address_of_ipv6() -> None:
    host = {"brokerIP1": "::1", "bindAddress": "::1"}
    async with Standalone(None, name_server_port=0, broker_port=0, properties=host) as pair:
        async with Session(pair.name_server_address) as session, Producer(session, "p") as producer:
            sent = await producer.send(Message("Six", b"x"))
            admin = Admin(session)
            found: list[StoredMessage] = []

            async def indexed() -> bool:
                found[:] = await admin.find_by_unique_id("Six", sent.message_id)
                return bool(found)

            await eventually(indexed)
            found[0].broker_name = ""
            await lookup.name_brokers(admin, found)
    assert found[0].broker_name == "broker-a"


@in_a_loop
async def test_of_more_messages_than_were_asked_for_the_first_are_taken() -> None:
    record = encode_record(StoredMessage("T", b"body", {"KEYS": "k"}))

    def more(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.SUCCESS, {}, record * 100)

    async with (
        scripted({RequestCode.QUERY_MESSAGE: more}) as broker,
        scripted(name_server({"broker-a": broker})) as names,
        Session(names) as session,
    ):
        assert len(await Admin(session).find_by_key("T", "k", 64)) == 64
