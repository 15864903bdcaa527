"""Quotas of a real broker: requests over a limit get SYSTEM_BUSY and the name of the limit."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.backlog import FlushBacklog
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.dispatch.limits import Bucket
from mq.daemons.config import ConfigError
from mq.daemons.operation_config import BrokerOperationConfig
from mq.protocol.batch import encode_batch
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.daemons.broker.harness import create_topic
from tests.daemons.broker.settings import broker_settings
from tests.daemons.peer import Peer

Script = Callable[[Broker, Peer], Awaitable[None]]


def with_broker(root: Path, script: Script, **settings: str) -> None:
    async def main() -> None:
        overrides = {"storePathRootDir": str(root / "store"), "listenPort": "0", **settings}
        loaded = BrokerSettings.load(None, {"brokerName": "broker-a", **overrides})
        async with Broker(loaded) as broker, Peer(broker.port) as peer:
            await create_topic(peer, "Orders")
            await script(broker, peer)

    asyncio.run(main())


async def send(
    peer: Peer, body: bytes, topic: str = "Orders", code: int = RequestCode.SEND_MESSAGE_V2
) -> Command:
    fields = {
        **{"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0"},
        **{"g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false"},
        "m": "true" if code == RequestCode.SEND_BATCH_MESSAGE else "false",
    }
    return await peer.ask(code, fields, body)


def test_an_address_that_sends_too_much_gets_the_name_of_the_limit(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        replies = [await send(peer, b"x") for _ in range(5)]
        busy = [reply for reply in replies if reply.code == ResponseCode.SYSTEM_BUSY]
        assert len(busy) >= 2  # 2 at once, and perhaps one more if the machine is slow
        assert all("clientSendRate" in (reply.remark or "") for reply in busy)
        refused = broker.listener.dispatcher.refusals[RequestCode.SEND_MESSAGE_V2, "clientSendRate"]
        assert refused == len(busy)
        async with Peer(broker.port) as other:  # another connection of the same address
            assert (await send(other, b"x")).code == ResponseCode.SYSTEM_BUSY
        changed = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"clientSendRate=0\n")
        assert changed.code == ResponseCode.SUCCESS
        for _ in range(10):
            assert (await send(peer, b"x")).code == ResponseCode.SUCCESS

    with_broker(tmp_path, script, clientSendRate="2")


def test_a_batch_counts_for_as_many_messages_as_it_has(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        batch = encode_batch([Message("Orders", b"x")] * 30)
        code = RequestCode.SEND_BATCH_MESSAGE
        assert (await send(peer, batch, code=code)).code == ResponseCode.SUCCESS
        reply = await send(peer, batch, code=code)
        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert "clientSendRate" in (reply.remark or "")

    with_broker(tmp_path, script, clientSendRate="30")


def test_a_bucket_fills_with_time_and_lets_a_large_batch_through_when_full() -> None:
    bucket = Bucket(10, 100.0)
    assert [bucket.take(1, 100.0) for _ in range(11)] == [True] * 10 + [False]
    assert bucket.take(1, 100.125) and not bucket.take(1, 100.125)
    assert not bucket.take(25, 100.875)
    assert bucket.take(25, 102.0)  # full
    assert not bucket.take(1, 103.5)  # 25 taken of 10: 1.5 s to wait
    assert bucket.take(1, 103.625)


def test_a_full_topic_refuses_messages_and_others_accept_them(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        assert (await send(peer, b"x" * 2000)).code == ResponseCode.SUCCESS
        await broker.services.topic_sizes.check()  # otherwise it is checked once a second
        reply = await send(peer, b"x")
        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert "Orders" in (reply.remark or "") and "topicMaxBytes" in (reply.remark or "")
        assert (await send(peer, b"x" * 3000, "Bills")).code == ResponseCode.SUCCESS
        refused = broker.listener.dispatcher.refusals[RequestCode.SEND_MESSAGE_V2, "topicMaxBytes"]
        assert refused == 1
        more = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"topicMaxBytes=1000000\n")
        assert more.code == ResponseCode.SUCCESS
        await broker.services.topic_sizes.check()
        assert (await send(peer, b"x")).code == ResponseCode.SUCCESS

    with_broker(tmp_path, script, topicMaxBytes="Orders:2000;Bills:1000000")


def test_the_size_of_a_topic_is_that_of_its_records(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        for _ in range(3):
            assert (await send(peer, b"x" * 100)).code == ResponseCode.SUCCESS
        await broker.services.topic_sizes.check()
        await broker.services.topic_sizes.check()  # counts new data, of which there is none
        (known,) = [
            k for q, k in broker.services.topic_sizes._known.items() if k[1] and q.topic == "Orders"
        ]
        (queue,) = [q for q in broker.stores.messages.queues.of_topic("Orders") if q.readable]
        sizes = [struct.unpack(">qiq", queue.entries(i, 1))[1] for i in range(3)]
        assert known == (0, 3, sum(sizes))

    with_broker(tmp_path, script, topicMaxBytes="1000000000")


def test_too_many_sends_that_wait_for_the_disk_block_others() -> None:
    class Waiting:
        waiting_replies = 11

    class Port:
        def __init__(self) -> None:
            self.refused: dict[str, object] = {}

        def refuse(self, cause: str, refusal: object) -> None:
            self.refused[cause] = refusal

        def accept(self, cause: str) -> None:
            self.refused.pop(cause, None)

    flusher, appender = Waiting(), Port()
    backlog = FlushBacklog(flusher, appender, broker_settings(send_thread_pool_queue_capacity=10))  # type: ignore[arg-type]
    backlog.check()
    assert "sendThreadPoolQueueCapacity" in str(appender.refused["flush backlog"])
    flusher.waiting_replies = 7
    backlog.check()
    assert appender.refused
    flusher.waiting_replies = 5
    backlog.check()
    assert not appender.refused


@pytest.mark.parametrize("text", ["many", "T:", "T:-5", "T:1;x", "1.5"])
def test_limits_of_topics_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="topicMaxBytes"):
        BrokerOperationConfig(topic_max_bytes=text).check()


def test_limits_of_topics_are_by_name_and_for_all_others() -> None:
    config = BrokerOperationConfig(topic_max_bytes="Orders:100; %RETRY%g:5 ;*:7")
    assert config.topic_limits() == {"Orders": 100, "%RETRY%g": 5, "*": 7}
    assert BrokerOperationConfig(topic_max_bytes="9").topic_limits() == {"*": 9}
    assert BrokerOperationConfig().topic_limits() == {}
