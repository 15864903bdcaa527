import asyncio

import pytest

from mq.client.admin import Admin
from mq.client.errors import ConnectError
from mq.client.operations.messages.traces import (
    MOST_TRACE_BYTES,
    Traces,
    entries,
    look_up,
    timeline,
)
from mq.client.producer.producer import Producer
from mq.client.trace.entries import EndTransaction, Pub, SubAfter, SubBefore, encode
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.compression import CompressionType, compress
from mq.protocol.message import Message, StoredMessage, encode_record
from mq.protocol.names import TRACE_TOPIC
from tests.client.clusters import GROUP, TOPIC, Cluster, cluster
from tests.client.scenarios import eventually, in_a_loop, opened
from tests.client.scripted import name_server, scripted
from tests.interop.ports import free_port


@opened(cluster)
async def test_the_life_of_a_message_is_in_order(made: Cluster) -> None:
    consumed = asyncio.Event()

    async def listen(message: StoredMessage) -> None:
        consumed.set()

    async with (
        Producer(made.address, "senders", trace=True) as producer,
        made.consumer(listener=listen, trace=True),
    ):
        sent = await producer.send(Message(TOPIC, b"body", keys=["order-7"]))
        await consumed.wait()

    async def both() -> Traces | None:
        found = await look_up(made.admin, sent.message_id)
        return found if found.messages and len(found.messages[0].steps) == 2 else None

    found = await eventually(both)
    assert found is not None and found.state == "found"
    (message,) = found.messages
    assert (message.message_id, message.topics, message.keys) == (
        sent.message_id, (TOPIC,), "order-7",
    )  # fmt: skip
    first, second = message.steps
    assert (first.kind, first.group, first.result) == ("sent", "senders", "success")
    assert (second.kind, second.group, second.result) == ("consumed", GROUP, "success")
    assert 0 < first.begin <= first.end and 0 < second.begin <= second.end
    assert sorted(row.type for row in found.rows) == ["Pub", "Sub"]
    by_key = await look_up(made.admin, "order-7")
    assert by_key.messages == found.messages


@opened(cluster)
async def test_a_message_without_a_trace_is_told_from_a_cluster_without_the_topic(
    made: Cluster,
) -> None:
    assert (await look_up(made.admin, "0" * 32, trace_topic="NoSuchTopic")).state == "no_topic"
    async with Producer(made.address, "senders", trace=True) as producer:
        sent = await producer.send(Message(TOPIC, b"body"))

    async def found() -> bool:
        return (await look_up(made.admin, sent.message_id)).state == "found"

    await eventually(found)
    assert (await look_up(made.admin, "0" * 32)).state == "none"


def trace(*entries: Pub | SubBefore | SubAfter | EndTransaction) -> StoredMessage:
    body = "".join(map(encode, entries)).encode()
    return StoredMessage("trace", body, born_host=("10.0.0.7", 41234))


def test_a_trace_that_is_compressed_is_read_and_of_one_that_grows_too_much_it_is_told() -> None:
    sent = Pub(timestamp=1, group="group", topic="topic", message_id="id", keys="key")
    flag = CompressionType.ZLIB.sys_flag
    compressed = StoredMessage("T", compress(encode(sent).encode()), sys_flag=flag)
    large = StoredMessage("T", compress(bytes(MOST_TRACE_BYTES + 1)), sys_flag=flag)
    found, failures = entries([large, compressed], "id")
    assert [entry for entry, _ in found] == [sent]
    (failure,) = failures
    assert "is larger than" in failure
    told = timeline([large, compressed], "key")
    assert (told.state, told.failures) == ("found", tuple(failures))


def test_retries_transactions_and_old_clients_are_read() -> None:
    pub = Pub(timestamp=1000, group="p", topic="T", message_id="A", keys="k", cost=7)
    other = Pub(timestamp=900, group="p", topic="U", message_id="B", keys="k x", success=False)
    before = SubBefore(timestamp=1100, group="g", request_id="r", message_id="A", retry_times=2)
    after = SubAfter(request_id="r", message_id="A", cost=5, success=False, timestamp=1200)
    alone = SubAfter(request_id="s", message_id="A", cost=5, success=True, group="g")
    end = EndTransaction(
        timestamp=1050, group="p", topic="T", message_id="A", transaction_id="t",
        state="COMMIT_MESSAGE",
    )  # fmt: skip
    found = timeline([trace(before, after), trace(pub, other, end), trace(alone)], "A")
    (message,) = found.messages
    assert [(step.kind, step.begin, step.end) for step in message.steps] == [
        ("consumed", 0, 5), ("sent", 1000, 1007), ("ended", 1050, 1050), ("consumed", 1100, 1105),
    ]  # fmt: skip
    failed = message.steps[-1]
    assert (failed.group, failed.result, failed.retry) == ("g", "failed", 2)
    assert message.steps[1].client_host == "10.0.0.7"
    assert {item.message_id for item in timeline([trace(pub, other)], "k").messages} == {"A", "B"}


def test_a_trace_that_cannot_be_read_is_said_and_the_others_are_read() -> None:
    pub = Pub(timestamp=1000, group="p", topic="T", message_id="A")
    broken = StoredMessage("trace", b"Pub\x01x\x01\x02", {"UNIQ_KEY": "X"})
    found = timeline([broken, trace(pub)], "A")
    assert found.state == "found" and len(found.failures) == 1
    assert found.failures[0].startswith("trace X: ")


@in_a_loop
async def test_what_a_broker_has_is_found_though_another_one_is_away() -> None:
    pub = Pub(timestamp=1000, group="p", topic="T", message_id="A")
    stored = StoredMessage(TRACE_TOPIC, encode(pub).encode(), {"KEYS": "A"})
    away = f"127.0.0.1:{free_port()}"

    def one(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.SUCCESS, {}, encode_record(stored))

    async with (
        scripted({RequestCode.QUERY_MESSAGE: one}) as broker,
        scripted(name_server({"broker-a": broker, "broker-b": away})) as names,
        Session(names) as session,
    ):
        found = await look_up(Admin(session), "A")
        assert (found.state, len(found.messages)) == ("found", 1)
        assert found.failures == (f"topic {TRACE_TOPIC}: {away}: Connection refused",)
        with pytest.raises(ConnectError):
            await look_up(Admin(session), "B")
