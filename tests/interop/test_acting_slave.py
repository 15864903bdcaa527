"""A slave acts for a master that was killed, and lets it go on when it is back: ours for one of
Java 5.5.0, and the reverse."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.blocking import BlockingSession, run
from mq.client.session import Session
from mq.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess, NameServerProcess
from tests.system.pairs import caught_up

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

NAME, OTHER, TOPIC, QUEUES = "set-acting", "set-other", "Orders", 4
ACTS = {"enableSlaveActingMaster": "true", "slaveReadEnable": "true"}
LEVELS = {"messageDelayLevel": "1s 15s"}
# With more than one replica a master of 5.x asks its slaves before it registers.
REPLICAS = {"totalReplicas": 2, "inSyncReplicas": 1}


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
    """How many messages of the topic a broker has."""
    found = 0
    for queue_id in range(QUEUES):
        fields = {"topic": TOPIC, "queueId": str(queue_id)}
        found += int(ask(address, RequestCode.GET_MAX_OFFSET, fields).fields["offset"])
    return found


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def has_group(address: str, group: str) -> bool:
    reply = ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
    return group in SubscriptionGroupWrapper.decode(reply.body).subscription_group_table


def test_a_delayed_message_of_a_java_master_that_is_gone_comes_once(tmp_path: Path) -> None:
    require_java()
    shown = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    with NameServerProcess(tmp_path / "names", shown) as names:
        registered = {"namesrvAddr": names.address}
        master = peers.JavaBroker(
            "5.5.0",
            tmp_path,
            names.address,
            {
                **{"brokerName": NAME, "brokerId": 0, "brokerRole": "ASYNC_MASTER"},
                # It waits for a connection from the address that its slave has registered.
                **{"haListenPort": free_port(), "brokerIP2": "127.0.0.1"},
                **{**ACTS, **LEVELS, **REPLICAS},
            },
            store=tmp_path / "store-master",
        )
        slave = BrokerProcess(
            tmp_path / "store-slave",
            {
                **{"brokerName": NAME, "brokerId": "1", "brokerRole": "SLAVE", **registered},
                # It is asked on listenPort - 2, too.
                **{"listenPort": str(free_port()), "haListenPort": "0"},
                **{"enableRemoteEscape": "true", **ACTS, **LEVELS},
            },
        )
        other = BrokerProcess(
            tmp_path / "store-other", {"brokerName": OTHER, "haListenPort": "0", **registered}
        )
        with master, other:
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            with BlockingSession(names.address) as session:
                admin = Admin(session)
                for broker in (master, other):
                    run(admin.create_topic(broker.address, config))
                run(
                    admin.update_subscription_group(
                        master.address, SubscriptionGroupConfig(group_name="last")
                    )
                )
            send(master.address, "delayed", 2)
            with slave:
                until(lambda: has_group(slave.address, "last"))  # and what is copied before it
                caught_up(slave.address, master.address)
                master.kill()
                until(lambda: count(other.address) == 1)
                master.start()
                send(master.address, "after", 1)
                until(lambda: count(master.address) == 1)
                caught_up(slave.address, master.address)
                time.sleep(1)  # what came again would have come with it
                assert (count(master.address), count(other.address)) == (1, 1)


@pytest.mark.long
def test_a_delayed_message_of_our_master_that_a_java_slave_has_delivered_comes_once(
    tmp_path: Path,
) -> None:
    require_java()
    shown = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    with NameServerProcess(tmp_path / "names", shown) as names:
        registered = {"namesrvAddr": names.address}
        master = BrokerProcess(
            tmp_path / "store-master",
            {
                **{"brokerName": NAME, "haListenPort": str(free_port()), **registered},
                **{"listenPort": str(free_port()), **ACTS, **LEVELS},
                "mappedFileSizeCommitLog": str(64 << 20),  # as of those of Java in these tests
            },
        )
        slave = peers.JavaBroker(
            "5.5.0",
            tmp_path,
            names.address,
            {
                **{"brokerName": NAME, "brokerId": 1, "brokerRole": "SLAVE"},
                **{"haListenPort": free_port(), "brokerIP2": "127.0.0.1"},
                **{"enableRemoteEscape": "true", **ACTS, **LEVELS},
            },
            store=tmp_path / "store-slave",
        )
        other = BrokerProcess(
            tmp_path / "store-other", {"brokerName": OTHER, "haListenPort": "0", **registered}
        )
        with master, other, slave:
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            with BlockingSession(names.address) as session:
                for broker in (master, other, slave):  # one of Java copies topics after a minute
                    run(Admin(session).create_topic(broker.address, config))
            send(master.address, "delayed", 2)
            caught_up(slave.address, master.address)
            master.kill()
            until(lambda: count(other.address) == 1)
            master.start()
            send(master.address, "after", 1)
            until(lambda: count(master.address) == 1)
            time.sleep(1)  # what came again would have come with it
            assert (count(master.address), count(other.address)) == (1, 1)
