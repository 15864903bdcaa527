"""The registration of a broker and its topics, with our real name servers in this process."""

import asyncio
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.session import Session
from mq.daemons.broker.topics.topic_table import new_topic
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import TopicConfig
from mq.testing import RunningBroker
from tests.daemons.broker.name_servers.registered import Setup, run
from tests.daemons.peer import PATIENCE


@pytest.mark.parametrize("compressed", ["false", "true"])
def test_every_name_server_knows_the_broker_and_its_topics(tmp_path: Path, compressed: str) -> None:
    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            for server in setup.servers:
                assert server.routes.brokers["broker-a"].broker_addrs == {0: "127.0.0.1:10911"}
                assert server.routes.live["127.0.0.1:10911"].ha_address == "127.0.0.1:10912"
                assert set(server.routes.topics) == set(setup.topics.table)
        for server in setup.servers:
            assert (server.routes.brokers, server.routes.topics) == ({}, {})

    run(tmp_path, script, compressedRegister=compressed)


def test_a_change_of_topics_is_registered_at_once(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            await setup.topics.update(new_topic("T", 3))
            await setup.topics.update(new_topic("U", 5))
            await setup.registration.announced()
            for server in setup.servers:
                assert server.routes.topics["T"]["broker-a"].write_queue_nums == 3
                assert server.routes.topics["U"]["broker-a"].write_queue_nums == 5
                assert server.routes.data_version("127.0.0.1:10911") == setup.topics.data_version
            await setup.topics.delete("T")
            await setup.registration.announced()
            for server in setup.servers:
                assert server.routes.data_version("127.0.0.1:10911") == setup.topics.data_version

    run(tmp_path, script)


@pytest.mark.parametrize("turns", range(4))
def test_topics_created_right_after_each_other_all_have_routes(tmp_path: Path, turns: int) -> None:
    """The second is created some loop iterations later, during the round of the first."""

    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            for pair in range(40):
                setup.topics.create_internal(f"first-{pair}", 1)
                for _ in range(turns):
                    await asyncio.sleep(0)
                setup.topics.create_internal(f"second-{pair}", 1)
                await setup.registration.announced()
            for server in setup.servers:
                assert set(server.routes.topics) == set(setup.topics.table)

    run(tmp_path, script)


def test_a_name_server_that_forgot_the_broker_gets_everything_again(tmp_path: Path) -> None:
    """It considers a broker dead and closes its connection, while a change is about to be sent."""

    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            server = setup.servers[0]
            for number in range(20):
                await setup.topics.update(new_topic(f"T{number}", 3))
                if number % 2:
                    await asyncio.sleep(0)
                connection = server.routes.live["127.0.0.1:10911"].connection
                server.routes._remove_address("127.0.0.1:10911")
                connection.close()
                await setup.topics.update(new_topic(f"U{number}", 3))
                await setup.every_topic_has_a_route(server)

    run(tmp_path, script)


def test_a_repeated_registration_is_never_treated_as_old(tmp_path: Path) -> None:
    """The name server forgot the broker, got an increment, and then the whole: all of it counts."""

    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            server = setup.servers[0]
            server.routes._remove_address("127.0.0.1:10911")  # and the connection stays
            await setup.topics.update(new_topic("T", 3))
            await setup.registration.announced()
            await setup.every_topic_has_a_route(server)

    run(tmp_path, script)


def test_more_topics_than_a_frame_holds_are_registered_in_parts(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        names = [f"{'long-name-' * 12}{number}" for number in range(45_000)]
        setup.topics.table = {
            **setup.topics.table,
            **{name: TopicConfig(topic_name=name) for name in names},
        }
        server = setup.servers[0]
        server.settings.update({"deleteTopicWithBrokerRegistration": "true"})
        setup.settings.broker = setup.settings.broker.replace(namesrv_addr=server.address)
        async with setup.registration:
            await setup.first_round()
            assert set(server.routes.topics) == set(setup.topics.table)
            (link,) = setup.registration.links()
            live = server.routes.live["127.0.0.1:10911"]
            await link.round(periodic=True)
            assert server.routes.live["127.0.0.1:10911"] is live  # queried, not registered again
            setup.topics.create_internal("one-more", 1)
            await setup.registration.announced()
            assert set(server.routes.topics) == set(setup.topics.table)

    run(tmp_path, script)


def test_an_increment_of_several_topics_is_not_treated_as_the_whole(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        for server in setup.servers:
            server.settings.update({"deleteTopicWithBrokerRegistration": "true"})
        async with setup.registration:
            await setup.first_round()
            await setup.topics.update_all([new_topic("T", 3), new_topic("U", 5)])
            await setup.registration.announced()
            for server in setup.servers:
                assert set(server.routes.topics) == set(setup.topics.table)
            await setup.topics.delete("U")
            await setup.topics.update(new_topic("V", 5))
            await setup.registration.announced()
            for server in setup.servers:
                assert set(server.routes.topics) == set(setup.topics.table)

    run(tmp_path, script)


def test_a_table_that_changed_without_a_new_version_is_registered(
    tmp_path: Path,
) -> None:
    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            setup.topics.table = {**setup.topics.table, "T": new_topic("T", 3)}
            for link in setup.registration.links():
                await link.round(periodic=True)
            for server in setup.servers:
                assert set(server.routes.topics) == set(setup.topics.table)

    run(tmp_path, script)


def test_a_read_only_broker_registers_its_topics_as_read_only(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        await setup.topics.update(new_topic("T", 3))
        async with setup.registration:
            await setup.first_round()
            setup.settings.update({"brokerPermission": "4"})
            await setup.topics.next_version()
            await setup.registration.announced()
            for server in setup.servers:
                assert server.routes.topics["T"]["broker-a"].perm == 4
        assert setup.topics.table["T"].perm == 6

    run(tmp_path, script)


def test_without_force_nothing_is_sent_again_while_nothing_changes(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            server = setup.servers[0]
            live = server.routes.live["127.0.0.1:10911"]
            seen = live.last_seen
            link = next(iter(setup.registration.links()))
            await link.round(periodic=True)
            # only queried, which counts as a sign of life
            assert server.routes.live["127.0.0.1:10911"] is live
            assert live.last_seen > seen
            server.routes.live.clear()  # as after a restart of the name server
            await link.round(periodic=True)
            assert server.routes.live["127.0.0.1:10911"] is not live

    run(tmp_path, script, forceRegister="false")


def test_ordered_topics_are_taken_from_the_name_server(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        await setup.topics.update(new_topic("T", 3))
        async with setup.registration:
            await setup.first_round()
            assert not setup.topics.table["T"].order
            (tmp_path / "kv.json").write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"x:3"}}}')
            settings = NamesrvSettings.load(
                None, {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
            )
            server = await setup.parts.enter_async_context(NameServer(settings))
            await setup.registration._connect_to([server.address])
            await setup.registration.announced()
            async with asyncio.timeout(PATIENCE):
                while not setup.topics.table["T"].order:  # noqa: ASYNC110 - it is saved first
                    await asyncio.sleep(0.005)

    run(tmp_path, script)


def test_when_a_deletion_is_answered_the_name_servers_know(tmp_path: Path) -> None:
    """So no registration that still has the topic is under way and could restore it."""
    names = [f"topic-{n}" for n in range(2000)]  # a registration takes several writes

    async def script(broker: RunningBroker) -> None:
        async with Session(broker.name_server, timeout=30) as session:
            admin = Admin(session)
            drop = {"deleteTopicWithBrokerRegistration": "true"}
            await admin.update_name_server_config(broker.name_server, drop)
            made = [TopicConfig(topic_name=name) for name in names]
            await admin.create_topics(broker.address, made)
            assert set(names) <= set((await admin.topic_list()).topic_list)
            for name in names[:5]:
                await admin.delete_topic_in_broker(broker.address, name)
                assert name not in (await admin.topic_list()).topic_list

    with RunningBroker(tmp_path) as broker:
        asyncio.run(script(broker))
