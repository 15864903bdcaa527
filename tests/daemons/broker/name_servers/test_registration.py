"""A broker's registration with real name servers of ours in this process."""

import asyncio
import http.server
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.client.address_server import address_server_url, fetch_text
from mq.client.admin import Admin
from mq.client.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.broker.tables.topics import Topics, new_topic
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.supervision import Tasks
from mq.protocol.bodies import BrokerData, MessageQueue, QueueData, TopicConfig
from mq.testing import RunningBroker
from tests.daemons.peer import PATIENCE
from tests.interop.ports import free_port

Script = Callable[["Setup"], Awaitable[None]]
HA_ADDRESS = "127.0.0.1:20912"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests needs longer to tell name servers of a change."""
    monkeypatch.setattr("mq.daemons.broker.name_servers.registration.ANNOUNCE_TIMEOUT", PATIENCE)


class Setup:
    """Two name servers, a broker's topics and its registration, not yet entered."""

    def __init__(self, root: Path, overrides: dict[str, str]) -> None:
        self.root = root
        self.overrides = overrides
        self.parts = AsyncExitStack()

    async def open(self) -> None:
        self.servers = [await self.name_server(f"ns{number}") for number in range(2)]
        names = ";".join(server.address for server in self.servers)
        overrides = {"brokerName": "broker-a", "namesrvAddr": names} | self.overrides
        self.settings = BrokerSettings.load(None, overrides)
        self.topics = Topics(self.root / "topics.json", self.settings)
        self.tasks = await self.parts.enter_async_context(Tasks())
        self.registration = Registration(self.settings, self.topics, 10911, 10912, self.tasks)

    async def name_server(self, name: str, port: int = 0) -> NameServer:
        settings = NamesrvSettings.load(
            None, {"listenPort": str(port), "kvConfigPath": str(self.root / f"{name}.json")}
        )
        return await self.parts.enter_async_context(NameServer(settings))

    async def first_round(self) -> None:
        await asyncio.wait_for(self.registration.first_round.wait(), PATIENCE)

    async def every_topic_has_a_route(self, server: NameServer) -> None:
        async with asyncio.timeout(PATIENCE):
            while set(server.routes.topics) != set(self.topics.table):
                await self.registration.round_ended()


def run(tmp_path: Path, script: Script, **overrides: str) -> None:
    async def main() -> None:
        setup = Setup(tmp_path, overrides)
        async with setup.parts:
            await setup.open()
            await script(setup)

    asyncio.run(main())


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


def test_a_change_of_topics_is_told_at_once(tmp_path: Path) -> None:
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
def test_topics_made_one_right_after_the_other_all_have_routes(tmp_path: Path, turns: int) -> None:
    """The second comes while the round of the first is on its way, some turns of the loop old."""

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
    """It takes a broker for dead and closes its connection, while a change is about to be told."""

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


def test_what_is_told_again_is_never_taken_for_old(tmp_path: Path) -> None:
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


def test_more_topics_than_a_frame_holds_are_told_in_parts(tmp_path: Path) -> None:
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
            assert server.routes.live["127.0.0.1:10911"] is live  # asked, not told again
            setup.topics.create_internal("one-more", 1)
            await setup.registration.announced()
            assert set(server.routes.topics) == set(setup.topics.table)

    run(tmp_path, script)


def test_an_increment_of_several_topics_is_not_taken_for_the_whole(tmp_path: Path) -> None:
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


def test_a_table_that_changed_without_a_version_of_its_own_is_told_all_the_same(
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


def test_a_broker_that_may_not_be_written_shows_its_topics_so(tmp_path: Path) -> None:
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


def test_a_dead_name_server_delays_no_other_and_is_told_all_when_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.name_servers.name_server_link.RETRY_PERIOD", 0.02)

    async def script(setup: Setup) -> None:
        port = free_port()
        late = f"127.0.0.1:{port}"
        setup.settings.broker = setup.settings.broker.replace(
            namesrv_addr=f"{late};{setup.servers[0].address}"
        )
        async with setup.registration:
            await setup.first_round()
            assert "broker-a" in setup.servers[0].routes.brokers
            await setup.topics.update(new_topic("T", 3))
            await setup.registration.announced()
            assert "T" in setup.servers[0].routes.topics
            came = await setup.name_server("late", port)
            registered = asyncio.Event()
            register = came.routes.register

            def noticing(*args: object, **kwargs: object) -> object:
                result = register(*args, **kwargs)  # type: ignore[arg-type]
                registered.set()
                return result

            monkeypatch.setattr(came.routes, "register", noticing)
            await asyncio.wait_for(registered.wait(), PATIENCE)
            assert set(came.routes.topics) == set(setup.topics.table)

    run(tmp_path, script)


def test_another_list_of_name_servers_is_followed_while_running(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        one, two = setup.servers
        setup.settings.broker = setup.settings.broker.replace(namesrv_addr=one.address)
        async with setup.registration:
            await setup.first_round()
            assert "broker-a" in one.routes.brokers and "broker-a" not in two.routes.brokers
            left = asyncio.Event()
            one.routes.unregister = lambda *_: left.set()  # type: ignore[method-assign]
            setup.settings.update({"namesrvAddr": two.address})
            await asyncio.wait_for(left.wait(), PATIENCE)
            await setup.registration.announced()
            assert "broker-a" in two.routes.brokers

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
            assert server.routes.live["127.0.0.1:10911"] is live  # asked only, and so seen
            assert live.last_seen > seen
            server.routes.live.clear()  # as after a restart of the name server
            await link.round(periodic=True)
            assert server.routes.live["127.0.0.1:10911"] is not live

    run(tmp_path, script, forceRegister="false")


def test_a_slave_learns_its_master(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        master = BrokerSettings.load(
            None,
            {
                "brokerName": "broker-a",
                "brokerIP1": "127.0.0.1",
                "namesrvAddr": ";".join(s.address for s in setup.servers),
            },
        )
        async with (
            Tasks() as tasks,
            Registration(master, setup.topics, 20911, 20912, tasks) as registration,
        ):
            await asyncio.wait_for(registration.first_round.wait(), PATIENCE)
            async with setup.registration:
                await setup.first_round()
                assert setup.registration.masters.address == "127.0.0.1:20911"
                assert setup.registration.masters.ha_address == "127.0.0.1:20912"

    run(tmp_path, script, brokerRole="SLAVE", brokerId="1")


def test_a_slave_that_is_there_first_learns_its_master_soon(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        settings = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": ";".join(s.address for s in setup.servers),
        }
        masters = setup.registration.masters
        async with setup.registration:
            await setup.first_round()
            assert (masters.address, masters.ha_address) == ("", "")
            master = BrokerSettings.load(None, settings)
            async with Tasks() as tasks, Registration(master, setup.topics, 20911, 20912, tasks):
                async with asyncio.timeout(9.0):  # by itself it registers each thirty seconds
                    await masters.changed.wait()
                assert (masters.address, masters.ha_address) == ("127.0.0.1:20911", HA_ADDRESS)
            setup.registration.look_for_master()
            async with asyncio.timeout(9.0):
                while masters.address:
                    await setup.registration.round_ended()
            assert masters.ha_address == HA_ADDRESS

    run(tmp_path, script, brokerRole="SLAVE", brokerId="1")


def test_a_slave_registers_no_topics(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        await setup.topics.update(new_topic("T", 3))
        async with setup.registration:
            await setup.first_round()
            for server in setup.servers:
                assert not server.routes.topics
                assert server.routes.brokers["broker-a"].broker_addrs == {
                    1: setup.registration.address
                }

    run(tmp_path, script, brokerRole="SLAVE", brokerId="1")


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


@pytest.fixture
def address_server() -> Iterator[tuple[type, str]]:
    """An HTTP server whose one text the test sets."""

    class Handler(http.server.BaseHTTPRequestHandler):
        text = b""
        paths: list[str] = []  # noqa: RUF012 - one server per test

        def do_GET(self) -> None:
            type(self).paths.append(self.path)
            self.send_response(200 if self.text else 404)
            self.end_headers()
            self.wfile.write(self.text)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Handler, f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_name_servers_may_come_from_an_address_server(
    tmp_path: Path, address_server: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, domain = address_server
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def script(setup: Setup) -> None:
        handler.text = f" {setup.servers[1].address}\n".encode()  # type: ignore[attr-defined]
        server = setup.servers[1]
        registered = asyncio.Event()
        register = server.routes.register

        def noticing(*args: object, **kwargs: object) -> object:
            result = register(*args, **kwargs)  # type: ignore[arg-type]
            registered.set()
            return result

        monkeypatch.setattr(server.routes, "register", noticing)
        async with setup.registration:
            await asyncio.wait_for(registered.wait(), PATIENCE)
            assert handler.paths[0] == "/rocketmq/nsaddr"  # type: ignore[attr-defined]
            assert "broker-a" in server.routes.brokers

    run(
        tmp_path,
        script,
        namesrvAddr="",
        fetchNamesrvAddrByAddressServer="true",
        rmqAddressServerDomain=domain,
    )


def test_an_address_server_that_fails_says_how(address_server: tuple[type, str]) -> None:
    handler, domain = address_server
    with pytest.raises(OSError, match="404"):
        fetch_text(address_server_url(domain, "nsaddr"))
    handler.text = b"x" * 70_000  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        fetch_text(address_server_url(domain, "nsaddr"))


def test_the_address_server_listens_on_8080_unless_told() -> None:
    assert address_server_url("ns.example", "nsaddr") == "http://ns.example:8080/rocketmq/nsaddr"
    assert address_server_url("ns.example:80", "x") == "http://ns.example:80/rocketmq/x"


def test_a_name_server_that_never_answers_holds_up_a_change_for_a_moment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.name_servers.registration.ANNOUNCE_TIMEOUT", 0.05)

    async def script(setup: Setup) -> None:
        silent = socket.create_server(("127.0.0.1", 0))  # connects, since nobody accepts
        port = silent.getsockname()[1]
        setup.settings.broker = setup.settings.broker.replace(namesrv_addr=f"127.0.0.1:{port}")
        async with setup.registration:
            await setup.topics.update(new_topic("T", 3))
            await asyncio.wait_for(setup.registration.announced(), PATIENCE)
        silent.close()

    run(tmp_path, script)


def test_when_a_deletion_is_answered_the_name_servers_know(tmp_path: Path) -> None:
    """So no registration that still has the topic is on its way, to bring it back."""
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


def test_the_queues_of_a_topic_are_those_of_the_name_server_that_knows_it(tmp_path: Path) -> None:
    """The first one may have just started."""

    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            routes = setup.servers[1].routes
            routes.brokers["broker-b"] = BrokerData(
                cluster="DefaultCluster", broker_name="broker-b", broker_addrs={0: "127.0.0.1:1"}
            )
            routes.topics["Far"] = {
                "broker-b": QueueData(
                    broker_name="broker-b", read_queue_nums=2, write_queue_nums=2, perm=6
                )
            }
            queues = await setup.registration.queues_of("Far")
            assert queues == [MessageQueue("Far", "broker-b", number) for number in range(2)]
            assert await setup.registration.queues_of("Nowhere") is None

    run(tmp_path, script)
