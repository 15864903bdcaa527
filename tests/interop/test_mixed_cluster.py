"""Our daemons and Java's in one cluster: our broker under Java name servers, both brokers under
ours.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.protocol.bodies import ClusterInfo, TopicConfig
from tests.interop import peers
from tests.interop.java_client import Got, JavaClient
from tests.interop.jvm import require_java
from tests.interop.our_name_server import OurNameServer
from tests.interop.ports import free_port
from tests.interop.tools import JavaTool, warm_tool
from tests.system.daemon import BrokerProcess
from tests.waiting import wait_until

pytestmark = pytest.mark.java

OURS = "our-broker"
THEIRS = "java-broker"
# The client release tested with each daemon release: together the tests cover both of each.
CLIENTS = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}


def cluster_of(namesrv: str) -> ClusterInfo:
    with BlockingSession(namesrv) as session:
        return run(Admin(session).cluster_info())


def make_topic(namesrv: str, topic: str, *brokers: str) -> None:
    """Create a topic with four queues on each broker; its route is known on return."""

    async def main() -> None:
        async with Session(namesrv) as session:
            admin = Admin(session)
            config = TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4)
            for broker in brokers:
                await admin.create_topic(broker, config)
            async with asyncio.timeout(60):
                while not await routed(admin):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def routed(admin: Admin) -> bool:
        if topic not in (await admin.topic_list()).topic_list:
            return False
        return len((await admin.topic_route(topic)).broker_datas) == len(brokers)

    asyncio.run(main())


def our_broker(tmp: Path, namesrv: str) -> BrokerProcess:
    settings = {"brokerName": OURS, "namesrvAddr": namesrv, "diskMaxUsedSpaceRatio": "95"}
    # A fixed port, so that it restarts at the same address.
    return BrokerProcess(tmp / "our-store", {**settings, "listenPort": str(free_port())})


@pytest.mark.parametrize("release", peers.SERVER_RELEASES)
def test_our_broker_serves_java_clients_under_a_java_name_server(
    release: str, tmp_path: Path
) -> None:
    require_java()
    with (
        peers.JavaNameServer(release, tmp_path) as namesrv,
        our_broker(tmp_path, namesrv.address) as broker,
    ):
        wait_until(lambda: OURS in cluster_of(namesrv.address).broker_addr_table)
        shown = cluster_of(namesrv.address).broker_addr_table[OURS]
        assert (shown.cluster, shown.broker_addrs) == ("DefaultCluster", {0: broker.address})
        make_topic(namesrv.address, "under-java", broker.address)
        with JavaClient(CLIENTS[release], namesrv.address, tmp_path) as java:
            sent = java.send("under-java", "sync", "routed", 8)
            created = java.send("created-under-java", "sync", "first", 1)
            assert {result.status for result in sent + created} == {"SEND_OK"}
            assert Counter(result.queue_id for result in sent) == dict.fromkeys(range(4), 2)
            java.consume("reader", "under-java-group", "under-java")
            got = java.got("reader", 8)
            assert sorted(m.message_id for m in got) == sorted(s.message_id for s in sent)
            java.stop_consumer("reader")
        # A broker that stops unregisters itself.
        assert broker.stop() == 0
        wait_until(lambda: OURS not in cluster_of(namesrv.address).broker_addr_table)


@dataclass(frozen=True)
class Mixed:
    """Our name server with our broker and a Java broker of `release`; a Java client."""

    release: str
    namesrv: str
    ours: BrokerProcess
    theirs: peers.JavaBroker
    java: JavaClient


@pytest.fixture(scope="module", params=["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)])
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    require_java()
    release: str = request.param
    tmp = tmp_path_factory.mktemp(f"mixed-{release}")
    with (
        OurNameServer(tmp) as namesrv,
        our_broker(tmp, namesrv.address) as ours,
        peers.JavaBroker(release, tmp, namesrv.address, {"brokerName": THEIRS}) as theirs,
        JavaClient(CLIENTS[release], namesrv.address, tmp) as java,
    ):
        wait_until(lambda: {OURS, THEIRS} <= set(cluster_of(namesrv.address).broker_addr_table))
        yield Mixed(release, namesrv.address, ours, theirs, java)


@pytest.fixture(scope="module")
def mqadmin() -> JavaTool:
    require_java()
    return warm_tool()


def consumed(mixed: Mixed, topic: str, group: str, count: int) -> list[Got]:
    """Return the messages that a group receives; both brokers have its commits on return."""
    reader = f"reader-{group}"
    mixed.java.consume(reader, group, topic)
    got = mixed.java.got(reader, count)
    mixed.java.commit(reader, lambda: committed(mixed, topic, group) == count)
    mixed.java.stop_consumer(reader)
    return got


def committed(mixed: Mixed, topic: str, group: str) -> int:
    """The sum of a group's offsets in all queues of a topic."""
    with BlockingSession(mixed.namesrv) as session:
        admin = Admin(session)
        offsets = [
            run(admin.query_consumer_offset(address, group, topic, queue)) or 0
            for address in (mixed.ours.address, mixed.theirs.address)
            for queue in range(4)
        ]
    return sum(offsets)


def test_a_topic_on_both_brokers_is_filled_and_read_as_one(mixed: Mixed) -> None:
    make_topic(mixed.namesrv, "spans", mixed.ours.address, mixed.theirs.address)
    sent = mixed.java.send("spans", "sync", "spread", 32)
    assert {result.status for result in sent} == {"SEND_OK"}
    assert Counter(result.broker for result in sent) == {OURS: 16, THEIRS: 16}
    got = consumed(mixed, "spans", "spans-group", 32)
    assert sorted(m.body for m in got) == sorted(f"spread-{number}" for number in range(32))
    by_id = {m.message_id: (m.broker, m.queue_id, m.queue_offset) for m in got}
    for result in sent:
        place = (result.broker, result.queue_id, result.queue_offset)
        assert by_id[result.message_id] == place
    for number in range(4):  # a key is found at either broker
        (found,) = mixed.java.messages("query", "spans", f"key-spread-{number}")
        assert found.body == f"spread-{number}"


def test_mqadmin_creates_and_shows_a_topic_of_both_brokers(mixed: Mixed, mqadmin: JavaTool) -> None:
    at = ("-n", mixed.namesrv)
    made = mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "shown", "-r", "2", "-w", "2", *at)
    assert mixed.ours.address in made and mixed.theirs.address in made
    sent = mixed.java.send("shown", "sync", "shown", 8)
    assert Counter(result.broker for result in sent) == {OURS: 4, THEIRS: 4}
    assert len(consumed(mixed, "shown", "shown-group", 8)) == 8
    listed = mqadmin("clusterList", *at)
    assert {mixed.ours.address, mixed.theirs.address} <= set(listed.split())
    rows = mqadmin("topicStatus", "-t", "shown", *at).splitlines()[1:]
    assert [row.split()[:4] for row in rows] == [
        [broker, str(queue), "0", "2"] for broker in sorted((OURS, THEIRS)) for queue in range(2)
    ]
    progress = mqadmin("consumerProgress", "-g", "shown-group", *at)
    places = [line.split()[1:5] for line in progress.splitlines() if line.startswith("shown ")]
    assert sorted(map(tuple, places)) == [
        (broker, str(queue), "2", "2") for broker in sorted((OURS, THEIRS)) for queue in range(2)
    ]
    deleted = mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "shown", *at)
    assert "success" in deleted
    assert "shown" not in mqadmin("topicList", *at).split()


def test_a_producer_continues_with_the_java_broker_while_ours_is_down(mixed: Mixed) -> None:
    make_topic(mixed.namesrv, "fails-over", mixed.ours.address, mixed.theirs.address)
    assert len(mixed.java.send("fails-over", "sync", "both", 8)) == 8
    mixed.ours.kill()
    wait_until(lambda: OURS not in cluster_of(mixed.namesrv).broker_addr_table)
    away = mixed.java.send("fails-over", "sync", "away", 8)
    assert {(result.status, result.broker) for result in away} == {("SEND_OK", THEIRS)}
    mixed.ours.start()
    wait_until(lambda: OURS in cluster_of(mixed.namesrv).broker_addr_table)
    got = consumed(mixed, "fails-over", "fails-over-group", 16)
    assert Counter(m.tags for m in got) == {"both": 8, "away": 8}
