"""Pulls that are moved to another offset, and others that are answered as by Java."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.pull.moved_events import MOST_A_SECOND, OffsetMovedEvents
from mq.daemons.broker.store.log.residency import NotInMemory, Residency
from mq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from mq.protocol.bodies.consume import OffsetMovedEvent
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import decode_records
from tests.daemons.broker.acl.guarded import pull_fields, send_fields
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer

EVENTS = "OFFSET_MOVED_EVENT"


def run(root: Path, script: Callable[[Broker, Peer], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        async with broker_on(root, **settings) as broker, Peer(broker.port) as peer:
            await create_topic(peer, "orders", 1)
            await script(broker, peer)

    asyncio.run(main())


async def pull(peer: Peer, offset: int, topic: str = "orders", **fields: str) -> Command:
    whole = {**pull_fields(topic, "readers", offset=offset), **fields}
    return await peer.ask(RequestCode.PULL_MESSAGE, whole)


def test_a_missing_offset_is_recorded_for_monitors(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await send(peer, "orders", b"x")
        assert (await pull(peer, 77)).code == ResponseCode.PULL_OFFSET_MOVED
        reply = await pull(peer, 0, EVENTS)
        assert reply.code == ResponseCode.SUCCESS
        (message,) = decode_records(reply.body)
        event = OffsetMovedEvent.decode(message.body)
        queue = MessageQueue("orders", broker.settings.broker.broker_name, 0)
        assert (event.consumer_group, event.message_queue) == ("readers", queue)
        assert (event.offset_request, event.offset_new) == (77, 1)
        assert message.properties == {"KEYS": "readers", "TAGS": "readers", "DELAY": "0"}
        assert message.born_host == ("127.0.0.1", broker.port)
        # A pull that finds a message or waits is not an event.
        await pull(peer, 0)
        await pull(peer, 1)
        assert broker.stores.messages.max_offset(EVENTS, 0) == 1

    run(tmp_path, script)


def test_clients_cannot_make_the_broker_write_endless_events(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        now = [0.0]
        events = OffsetMovedEvents(
            broker.delivery.writer, broker.settings, ("127.0.0.1", 1), lambda: now[0]
        )
        for second in (0.0, 1.0):
            now[0] = second
            for _ in range(MOST_A_SECOND + 5):
                events.moved("g", "orders", 0, 9, 0)
        broker.stores.messages.appender.commit()
        assert broker.stores.messages.max_offset(EVENTS, 0) == 2 * MOST_A_SECOND
        assert events.dropped == 10

    run(tmp_path, script)


def test_a_group_without_permission_to_broadcast_is_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        group = SubscriptionGroupConfig(group_name="readers", consume_broadcast_enable=False)
        await broker.stores.groups.update(group)
        await send(peer, "orders", b"x")
        for model in (MessageModel.BROADCASTING, MessageModel.CLUSTERING):
            subscription = SubscriptionData(topic="orders", sub_string="*", sub_version=1)
            data = ConsumerData(
                group_name="readers", message_model=model, subscription_data_set=[subscription]
            )
            body = HeartbeatData(client_id="c", consumer_data_set=[data]).encode()
            await peer.ask(RequestCode.HEART_BEAT, None, body)
            reply = await pull(peer, 0, sysFlag="0")
            if model is MessageModel.BROADCASTING:
                assert reply.code == ResponseCode.NO_PERMISSION
                text = "the consumer group[readers] can not consume by broadcast way"
                assert reply.remark == text
            else:
                assert reply.code == ResponseCode.SUCCESS
            # A subscription in the request is not checked, as in Java.
            assert (await pull(peer, 0)).code == ResponseCode.SUCCESS

    run(tmp_path, script)


def test_an_unknown_group_is_reported_before_an_unknown_topic(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        reply = await pull(peer, 0, "nowhere")
        assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        await broker.stores.groups.update(SubscriptionGroupConfig(group_name="readers"))
        assert (await pull(peer, 0, "nowhere")).code == ResponseCode.TOPIC_NOT_EXIST

    run(tmp_path, script, autoCreateSubscriptionGroup="false")


def test_an_expression_of_blanks_finds_nothing(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"without a tag")
        await send(peer, "orders", b"x", properties="TAGS\x01a")
        for blank in ("  ", " || "):
            reply = await pull(peer, 0, subscription=blank)
            assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY, blank
            assert reply.fields["nextBeginOffset"] == "2"
        assert len(decode_records((await pull(peer, 0, subscription="")).body)) == 2
        assert (await pull(peer, 0, subscription="||")).code == 23

    run(tmp_path, script)


def test_the_lag_counts_for_a_group_whose_filter_finds_nothing(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await send(peer, "orders", bytes(10), properties="TAGS\x01a")
        await create_topic(peer, "others", 1)
        await send(peer, "others", bytes(5000))
        reply = await pull(peer, 0, subscription="b")
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert broker.services.slow_consumers.check() == ["readers"]
        assert (await pull(peer, 0)).code == ResponseCode.NO_PERMISSION

    settings = {
        "disableConsumeIfConsumerReadSlowly": "true",
        "consumerFallbehindThreshold": "2000",
    }
    run(tmp_path, script, **settings)


class SlowDisk(Residency):
    """Pages that are loaded once, slowly."""

    asked = 0

    def require(self, entries: bytes, most_bytes: int) -> bytes:
        self.asked += 1
        if self.asked == 1:
            raise NotInMemory([0])
        return entries

    async def load(self, absent: NotInMemory) -> None:
        await super().load(absent)
        await asyncio.sleep(0.03)


def test_a_pull_that_waits_for_pages_counts_with_its_time(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await send(peer, "orders", b"x")
        broker.services.pulls._residency = SlowDisk(broker.stores.messages.log)
        assert (await pull(peer, 0)).code == ResponseCode.SUCCESS
        counter = broker.stats.counters.group("orders", "readers", 0)
        assert (counter.pulls, counter.messages) == (1, 1)
        assert counter.waited >= 29

    run(tmp_path, script)


def test_a_consumer_sends_back_on_the_fast_port_too(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        async with Peer(broker.fast_listener.port) as fast:
            fields = {"offset": "0", "group": "readers", "delayLevel": "1"}
            await send(peer, "orders", b"x")
            reply = await fast.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
            assert reply.code == ResponseCode.SUCCESS, reply
            assert broker.stores.messages.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1

    run(tmp_path, script)
