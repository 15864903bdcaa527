"""Our name server with Java brokers, tools and clients; our registration at Java name servers."""

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.broker.topics.topic_table import Topics, new_topic
from mq.daemons.supervision import Tasks
from mq.protocol.bodies import ClusterInfo, TopicList, TopicRouteData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.our_name_server import OurNameServer
from tests.interop.tools import JavaTool, warm_tool

pytestmark = pytest.mark.java

SOON = 20.0  # seconds; a broker's periodic registration takes 30


@dataclass(frozen=True)
class Mixed:
    """Our name server with a Java broker of `release`."""

    release: str
    namesrv: OurNameServer
    broker: peers.JavaBroker


@pytest.fixture(scope="module", params=peers.SERVER_RELEASES)
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    require_java()
    release: str = request.param
    tmp = tmp_path_factory.mktemp(f"mixed-{release}")
    with OurNameServer(tmp) as namesrv:
        config = {"brokerName": "java-broker"}
        with peers.JavaBroker(release, tmp, namesrv.address, config) as broker:
            yield Mixed(release, namesrv, broker)


def ask(address: str, code: int, fields: dict[str, str] | None = None) -> Command:
    async def main() -> Command:
        async with Session(address) as session:
            return await session.invoke(address, Command(code, fields or {}))

    return asyncio.run(main())


@pytest.fixture(scope="module")
def mqadmin() -> JavaTool:
    """The Java tool of 4.9.7."""
    require_java()
    return warm_tool()


def test_a_java_broker_and_its_topics_are_listed_by_mqadmin(
    mixed: Mixed, mqadmin: JavaTool
) -> None:
    listed = mqadmin("topicList", "-n", mixed.namesrv.address).split()
    assert {"TBW102", "BenchmarkTest", "java-broker", "DefaultCluster"} <= set(listed)
    clusters = mqadmin("clusterList", "-n", mixed.namesrv.address)
    assert mixed.broker.address in clusters and "java-broker" in clusters


def test_a_topic_created_by_mqadmin_has_a_route_and_is_deleted(
    mixed: Mixed, mqadmin: JavaTool
) -> None:
    address = mixed.namesrv.address
    made = mqadmin(
        *("updateTopic", "-c", "DefaultCluster", "-t", "made", "-r", "3", "-w", "3"),
        *("-n", address),
    )
    assert "create topic to" in made and "success" in made
    assert '"readQueueNums":3' in mqadmin("topicRoute", "-t", "made", "-n", address)
    route = TopicRouteData.decode(
        ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "made"}).body
    )
    assert [b.broker_addrs for b in route.broker_datas] == [{0: mixed.broker.address}]
    done = mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "made", "-n", address)
    assert "success" in done
    topics = TopicList.decode(ask(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)
    assert "made" not in topics.topic_list


def test_settings_kv_and_write_permission_are_managed_by_mqadmin(
    mixed: Mixed, mqadmin: JavaTool
) -> None:
    address = mixed.namesrv.address
    key = ("-s", "NS", "-k", "key")
    assert "success" in mqadmin("updateKvConfig", *key, "-v", "value", "-n", address)
    reply = ask(address, RequestCode.GET_KV_CONFIG, {"namespace": "NS", "key": "key"})
    assert reply.fields == {"value": "value"}
    assert "success" in mqadmin("deleteKvConfig", *key, "-n", address)
    setting = ("-k", "orderMessageEnable", "-v", "true")
    assert "success" in mqadmin("updateNamesrvConfig", *setting, "-n", address)
    shown = mqadmin("getNamesrvConfig", "-n", address)
    assert re.search(r"orderMessageEnable *= *true", shown)
    assert re.search(r"OK, \d+", mqadmin("wipeWritePerm", "-b", "java-broker", "-n", address))
    assert re.search(r"OK, \d+", mqadmin("addWritePerm", "-b", "java-broker", "-n", address))


def test_mqadmin_of_5_5_works_with_our_name_server(mixed: Mixed) -> None:
    address = mixed.namesrv.address
    make = ("updateTopic", "-c", "DefaultCluster", "-t", "five", "-r", "3", "-w", "3")
    tool = warm_tool("5.5.0")
    assert "create topic to" in tool(*make, "-n", address)
    assert {"five", "TBW102"} <= set(tool("topicList", "-n", address).split())


@pytest.mark.parametrize("release", peers.CLIENT_RELEASES)
def test_java_clients_work_through_our_name_server(
    mixed: Mixed, release: str, tmp_path: Path
) -> None:
    topic = f"through-{release.replace('.', '-')}"
    sent = peers.run_java(release, "Produce.java", mixed.namesrv.address, topic, "10")
    assert sent.stdout.count("SEND_OK") == 10, sent.stdout + sent.stderr
    consumer = peers.JavaProgram(
        release, "Consume.java", mixed.namesrv.address, f"group-{topic}", topic, tmp=tmp_path
    )
    with consumer:
        assert len(consumer.wait_for_line("GOT java-broker", 60, 10)) == 10


@pytest.mark.parametrize(
    ("release", "way"), [("4.9.7", "killed"), ("4.9.7", "stopped"), ("5.5.0", "killed")]
)
def test_a_java_broker_that_stops_leaves_the_routes_at_once(
    release: str, way: str, tmp_path: Path
) -> None:
    require_java()
    with OurNameServer(tmp_path) as namesrv:
        with peers.JavaBroker(release, tmp_path, namesrv.address) as broker:
            assert broker.name in _cluster(namesrv.address).broker_addr_table
            if way == "stopped":
                broker.stop()
        deadline = time.monotonic() + 60
        while _cluster(namesrv.address).broker_addr_table and time.monotonic() < deadline:
            time.sleep(0.02)
        assert _cluster(namesrv.address) == ClusterInfo()


def _cluster(address: str) -> ClusterInfo:
    return ClusterInfo.decode(ask(address, RequestCode.GET_BROKER_CLUSTER_INFO).body)


@pytest.mark.parametrize("release", peers.SERVER_RELEASES)
@pytest.mark.parametrize("compressed", ["false", "true"])
def test_our_broker_registers_with_a_java_name_server(
    release: str, compressed: str, tmp_path: Path
) -> None:
    require_java()

    async def main(address: str) -> None:
        settings = BrokerSettings.load(
            None,
            {
                "brokerName": "ours",
                "namesrvAddr": address,
                "compressedRegister": compressed,
            },
        )
        topics = Topics(tmp_path / "topics.json", settings)
        async with (
            Tasks() as tasks,
            Session(address) as session,
            Registration(settings, topics, 10911, 10912, tasks) as registration,
        ):
            await registration.first_round.wait()
            await topics.update(new_topic("ordered", 5))
            await registration.announced()
            command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "ordered"})
            async with asyncio.timeout(SOON):
                # A 5.x name server processes registrations in a separate queue.
                while (reply := await session.invoke(address, command)).code:
                    await asyncio.sleep(0.05)
                    command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "ordered"})
            route = TopicRouteData.decode(reply.body)
            assert route.queue_datas[0].write_queue_nums == 5
            assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
            command = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            known = TopicList.decode((await session.invoke(address, command)).body).topic_list
            assert set(topics.table) <= known

    with peers.JavaNameServer(release, tmp_path) as namesrv:
        asyncio.run(main(namesrv.address))
        deadline = time.monotonic() + 60
        while _cluster(namesrv.address).broker_addr_table and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _cluster(namesrv.address).broker_addr_table == {}


@pytest.mark.parametrize("release", peers.SERVER_RELEASES)
def test_a_java_name_server_gets_every_topic_whenever_it_was_created(
    release: str, tmp_path: Path
) -> None:
    """Topics are created in quick succession, and while the name server is down or suspended."""
    require_java()

    async def make_pairs(topics: Topics, prefix: str, turns: int) -> None:
        for pair in range(20):
            topics.create_internal(f"{prefix}-{pair}-a", 1)
            for _ in range(turns):
                await asyncio.sleep(0)
            topics.create_internal(f"{prefix}-{pair}-b", 1)
            await asyncio.sleep(0.01)

    async def known(address: str) -> set[str]:
        async with Session(address) as session:
            command = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            body = (await session.invoke(address, command)).body
            return TopicList.decode(body).topic_list

    async def all_known(address: str, topics: Topics) -> None:
        async with asyncio.timeout(SOON):
            while not set(topics.table) <= await known(address):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def main(namesrv: peers.JavaNameServer) -> None:
        settings = BrokerSettings.load(None, {"brokerName": "ours", "namesrvAddr": namesrv.address})
        topics = Topics(tmp_path / "topics.json", settings)
        async with (
            Tasks() as tasks,
            Registration(settings, topics, 10911, 10912, tasks) as registration,
        ):
            await registration.first_round.wait()
            for turns in range(3):
                await make_pairs(topics, f"pairs{turns}", turns)
            await all_known(namesrv.address, topics)
            namesrv.pause()
            await make_pairs(topics, "paused", 1)
            namesrv.go_on()
            await all_known(namesrv.address, topics)
            await asyncio.to_thread(namesrv.kill)
            await make_pairs(topics, "away", 1)
            await asyncio.to_thread(namesrv.start)
            await make_pairs(topics, "back", 1)
            await all_known(namesrv.address, topics)

    with peers.JavaNameServer(release, tmp_path) as namesrv:
        asyncio.run(main(namesrv))
