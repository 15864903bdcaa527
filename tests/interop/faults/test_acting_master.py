"""A Java 5.5.0 master and slave under our name server; the slave becomes the acting master."""

from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.transport.blocking import BlockingSession, run
from mq.protocol.bodies import TopicConfig
from tests.interop import peers
from tests.interop.java_client import JavaClient, JavaFailed
from tests.interop.jvm import require_java
from tests.interop.ports import free_port
from tests.system.daemon import NameServerProcess
from tests.system.pairs import caught_up
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

NAME = "set-acting"
TOPIC = "Orders"


def broker(tmp: Path, names: str, number: int) -> peers.JavaBroker:
    settings = {
        "brokerName": NAME,
        "brokerId": number,
        "brokerRole": "SLAVE" if number else "ASYNC_MASTER",
        "enableSlaveActingMaster": "true",
        "slaveReadEnable": "true",
        "haListenPort": free_port(),
        "brokerHeartbeatInterval": 500,
        "brokerNotActiveTimeoutMillis": 5000,
    }
    return peers.JavaBroker("5.5.0", tmp, names, settings, store=tmp / f"store-{number}")


def route(names: str) -> tuple[dict[int, str], int]:
    """The addresses in the route of the topic, and its permissions."""
    with BlockingSession(names) as session:
        found = run(Admin(session).topic_route(TOPIC))
    return found.broker_datas[0].broker_addrs, found.queue_datas[0].perm


def make_topic(names: str, *brokers: str) -> None:
    """Create the topic at both: a Java slave copies topics only after a minute."""
    config = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
    with BlockingSession(names) as session:
        for address in brokers:
            run(Admin(session).create_topic(address, config))


def test_a_java_slave_is_the_acting_master_while_its_master_is_down(tmp_path: Path) -> None:
    require_java()
    shown = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    with (
        NameServerProcess(tmp_path / "names", shown) as names,
        broker(tmp_path, names.address, 0) as master,
        broker(tmp_path, names.address, 1) as slave,
        JavaClient("5.5.0", names.address, tmp_path) as java,
    ):
        make_topic(names.address, master.address, slave.address)
        sent = java.send(TOPIC, "sync", "before", 8)
        assert {result.status for result in sent} == {"SEND_OK"}
        caught_up(slave.address, master.address)
        wait_until(lambda: route(names.address) == ({0: master.address, 1: slave.address}, 6))
        master.kill()
        wait_until(lambda: route(names.address) == ({0: slave.address}, 4))
        java.consume("late", "comes-late", TOPIC)
        got = {message.body for message in java.got("late", 8)}
        assert got == {f"before-{number}" for number in range(8)}
        with pytest.raises(JavaFailed):
            java.send(TOPIC, "sync", "nobody", 1)
        master.start()
        wait_until(lambda: route(names.address) == ({0: master.address, 1: slave.address}, 6))
        wait_until(lambda: is_sent(java))


def is_sent(java: JavaClient) -> bool:
    try:
        return java.send(TOPIC, "sync", "after", 1)[0].status == "SEND_OK"
    except (JavaFailed, MQError):
        return False
