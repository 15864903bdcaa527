"""Topics of a real broker and of one that lacks what came with RocketMQ 5."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.admin.name_servers import ORDER_TOPICS
from mq.client.errors import RequestTimeout
from mq.client.operations.errors import InvalidRequest
from mq.client.operations.subjects import new_topic, topics
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.client.clusters import TOPIC, cluster, numbers
from tests.client.scripted import scripted
from tests.interop.ports import free_port


def test_the_queues_of_a_topic_are_told_and_a_dead_broker_beside_them() -> None:
    async def scenario() -> None:
        async with cluster() as c:
            dead = f"127.0.0.1:{free_port()}"
            await c.send(*numbers(8))
            rows, failed = await topics.status(c.admin, [c.pair.broker.address, dead], TOPIC, 10)
        assert [row.queue_id for row in rows] == [0, 1, 2, 3]
        assert sum(row.max_offset - row.min_offset for row in rows) == 8
        assert list(failed) == [dead]

    asyncio.run(scenario())


def test_settings_are_told_of_one_topic() -> None:
    async def scenario() -> None:
        async with cluster() as c:
            config = await topics.settings(c.admin, c.pair.broker.address, TOPIC)
            nothing = await topics.settings(c.admin, c.pair.broker.address, "none")
        assert config is not None
        assert (config.read_queue_nums, nothing) == (4, None)

    asyncio.run(scenario())


def test_a_broker_of_4_9_is_asked_for_all_topics_when_it_cannot_tell_of_one() -> None:
    async def scenario() -> None:
        asked = []

        def every(request: Command, channel: Channel) -> Command:
            asked.append(request.code)
            table = {"T": TopicConfig(topic_name="T", read_queue_nums=3)}
            return request.reply(
                0, None, TopicConfigSerializeWrapper(topic_config_table=table).encode()
            )

        async with (
            scripted({RequestCode.GET_ALL_TOPIC_CONFIG: every}) as old,
            Session(old) as session,
        ):
            config = await topics.settings(Admin(session), old, "T")
            assert config is not None
            assert config.read_queue_nums == 3
            assert await topics.settings(Admin(session), old, "U") is None
        assert asked == [RequestCode.GET_ALL_TOPIC_CONFIG] * 2

    asyncio.run(scenario())


def test_a_topic_that_is_removed_leaves_the_broker_and_the_routes() -> None:
    async def scenario() -> None:
        async with cluster() as c:
            removed = await topics.remove(c.admin, [c.pair.broker.address], TOPIC, "DefaultCluster")
            assert await topics.settings(c.admin, c.pair.broker.address, TOPIC) is None
        assert removed.rows == (
            ("broker", c.pair.broker.address, TOPIC),
            ("name server", c.pair.name_server_address, TOPIC),
        )

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["a=b", "+a", "+a=", "-a=b", "+a=1,+a=2", ""])
def test_attributes_that_a_broker_would_misread_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="attributes"):
        topics.parse_attributes(text)


def test_a_topic_that_name_servers_do_not_know_yet_is_not_made_over() -> None:
    """With fewer queues than it has, what lies in the others would be lost to its readers."""

    async def scenario() -> None:
        async with cluster(queues=16) as c:
            server = c.pair.name_server_address
            await c.admin.delete_topic_in_name_server(server, TOPIC)
            name = c.pair.broker.settings.broker.broker_cluster_name
            with pytest.raises(RequestTimeout):
                await new_topic.make(c.admin, TOPIC, name, 0.2)
            config = await topics.settings(c.admin, c.pair.broker.address, TOPIC)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums) == (16, 16)

    asyncio.run(scenario())


def test_a_new_name_server_does_not_take_other_brokers_out_of_an_ordered_topic(
    tmp_path: Path,
) -> None:
    """It has no order configuration, and all get the same."""

    async def scenario() -> None:
        async with AsyncExitStack() as parts:
            addresses = []
            for name in ("new", "old"):
                own = {"listenPort": "0", "kvConfigPath": str(tmp_path / f"{name}.json")}
                server = NameServer(NamesrvSettings.load(None, own))
                addresses.append((await parts.enter_async_context(server)).address)
            new, old = addresses
            session = await parts.enter_async_context(Session(addresses))
            admin = Admin(session)
            await admin.put_kv_at(old, ORDER_TOPICS, "T", "broker-a:4;broker-b:4")
            await topics._merge_order_conf(admin, "T", "broker-b:8")
            for address in (new, old):
                order = await admin.get_kv(address, ORDER_TOPICS, "T") or ""
                assert sorted(order.split(";")) == ["broker-a:4", "broker-b:8"]

    asyncio.run(scenario())
