"""A slave acts for a killed master and steps back when it returns: ours for a Java 5.5.0 master,
and the reverse.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess, NameServerProcess
from tests.system.pairs import caught_up
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

NAME, OTHER, TOPIC, QUEUES = "set-acting", "set-other", "Orders", 4
ACTS = {"enableSlaveActingMaster": "true", "slaveReadEnable": "true"}
LEVELS = {"messageDelayLevel": "1s 15s"}
# A master of 5.x with more than one replica queries its slaves before it registers.
REPLICAS = {"totalReplicas": 2, "inSyncReplicas": 1}
ESCAPES = {"enableRemoteEscape": "true"}

Broker = BrokerProcess | peers.JavaBroker


def ask(address: str, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> Command:
    async def script() -> Command:
        async with Session("127.0.0.1:1", timeout=10) as session:
            reply = await session.invoke(address, Command(code, fields, body))
            assert reply.code == ResponseCode.SUCCESS, reply
            return reply

    return asyncio.run(script())


def send(address: str, body: str, level: int) -> None:
    fields = {"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "h": "0"}
    fields |= {
        "g": str(time.time_ns() // 1_000_000),
        "i": f"DELAY\x01{level}\x02UNIQ_KEY\x01{body}",
    }
    fields |= {"j": "0", "k": "false", "m": "false"}
    ask(address, RequestCode.SEND_MESSAGE_V2, fields, body.encode())


def count(address: str) -> int:
    """The number of messages of the topic at a broker."""
    found = 0
    for queue_id in range(QUEUES):
        fields = {"topic": TOPIC, "queueId": str(queue_id)}
        found += int(ask(address, RequestCode.GET_MAX_OFFSET, fields).fields["offset"])
    return found


def has_group(address: str, group: str) -> bool:
    reply = ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
    return group in SubscriptionGroupWrapper.decode(reply.body).subscription_group_table


@contextmanager
def names_and_other(folder: Path) -> Iterator[tuple[str, BrokerProcess]]:
    """The address of a name server, and a broker of another replica set that is not started yet."""
    shown = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    with NameServerProcess(folder / "names", shown) as names:
        settings = {"brokerName": OTHER, "haListenPort": "0", "namesrvAddr": names.address}
        yield names.address, BrokerProcess(folder / "store-other", settings)


def of_java(folder: Path, names: str, **settings: str | int) -> peers.JavaBroker:
    """A Java broker of the set; a slave expects a connection from the registered address."""
    own: dict[str, str | int] = {"brokerName": NAME, "haListenPort": free_port()}
    own |= {"brokerIP2": "127.0.0.1", **ACTS, **LEVELS, **settings}
    return peers.JavaBroker("5.5.0", folder, names, own, store=folder / "store-java")


def of_ours(folder: Path, names: str, **settings: str) -> BrokerProcess:
    """A broker of ours in the set, which also serves on listenPort - 2."""
    own = {"brokerName": NAME, "listenPort": str(free_port()), "namesrvAddr": names}
    return BrokerProcess(folder / "store-ours", {**own, **ACTS, **LEVELS, **settings})


def make_topic(names: str, *brokers: Broker) -> None:
    config = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    with BlockingSession(names) as session:
        for broker in brokers:
            run(Admin(session).create_topic(broker.address, config))


def be_away(master: Broker, slave: Broker, other: Broker) -> None:
    """Kill a master with a delayed message, and restart it when its slave has sent that to another
    set.
    """
    caught_up(slave.address, master.address)
    master.kill()
    wait_until(lambda: count(other.address) == 1)
    master.start()
    send(master.address, "after", 1)
    wait_until(lambda: count(master.address) == 1)


def test_a_delayed_message_of_a_killed_java_master_is_delivered_once(tmp_path: Path) -> None:
    require_java()
    with names_and_other(tmp_path) as (names, other):
        master = of_java(tmp_path, names, brokerId=0, brokerRole="ASYNC_MASTER", **REPLICAS)
        slave = of_ours(
            tmp_path, names, brokerId="1", brokerRole="SLAVE", haListenPort="0", **ESCAPES
        )
        with master, other:
            make_topic(names, master, other)
            with BlockingSession(names) as session:
                last = SubscriptionGroupConfig(group_name="last")
                run(Admin(session).update_subscription_group(master.address, last))
            send(master.address, "delayed", 2)
            with slave:
                # and the tables copied before it
                wait_until(lambda: has_group(slave.address, "last"))
                be_away(master, slave, other)
                caught_up(slave.address, master.address)
                time.sleep(1)  # a second delivery would have arrived with it
                assert (count(master.address), count(other.address)) == (1, 1)


@pytest.mark.long
def test_a_delayed_message_delivered_by_a_java_slave_is_not_delivered_by_our_master(
    tmp_path: Path,
) -> None:
    require_java()
    with names_and_other(tmp_path) as (names, other):
        files = {"mappedFileSizeCommitLog": str(64 << 20)}  # like Java's files in these tests
        master = of_ours(tmp_path, names, haListenPort=str(free_port()), **files)
        slave = of_java(tmp_path, names, brokerId=1, brokerRole="SLAVE", **ESCAPES)
        with master, other, slave:
            make_topic(names, master, other, slave)  # a Java slave copies topics after a minute
            send(master.address, "delayed", 2)
            be_away(master, slave, other)
            time.sleep(1)  # a second delivery would have arrived with it
            assert (count(master.address), count(other.address)) == (1, 1)
