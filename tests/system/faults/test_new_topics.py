"""A topic is created, messages are acknowledged, and the master is killed (kill -9) at once."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mq.protocol.codes import ResponseCode
from tests.daemons.controller.etcd_server import EtcdServer
from tests.interop.ports import free_port
from tests.system.controlled_set import NAME, PATIENCE, controller, member
from tests.system.daemon import BrokerProcess
from tests.system.ledger import QUEUES, TOPIC, read_all, send_command
from tests.system.pairs import caught_up

MESSAGES = 200
ROUNDS = 3
NEW = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
GROUP = SubscriptionGroupConfig(group_name="g", retry_max_times=3)


async def fill(address: str) -> None:
    """Create a topic and a group, and send messages that are acknowledged."""
    async with Session("127.0.0.1:1", timeout=15) as session:
        admin = Admin(session)
        await admin.update_subscription_group(address, GROUP)
        await admin.create_topic(address, NEW)
        answers = [
            session.request(address, send_command(f"id-{number:06d}", number % QUEUES, 900))
            for number in range(MESSAGES)
        ]
        codes = {answer.code for answer in await asyncio.gather(*answers)}
        assert codes == {ResponseCode.SUCCESS}


async def check(address: str) -> None:
    """The broker serves all messages, and has the settings of the topic and the group."""
    found = await read_all(address)
    assert len(found) == MESSAGES
    async with Session("127.0.0.1:1", timeout=15) as session:
        admin = Admin(session)
        topics = (await admin.topic_configs(address)).topic_config_table
        assert topics[TOPIC].read_queue_nums == QUEUES
        assert topics[TOPIC].write_queue_nums == QUEUES
        groups = (await admin.subscription_groups(address)).subscription_group_table
        assert groups["g"].retry_max_times == GROUP.retry_max_times


@pytest.mark.parametrize("number", range(ROUNDS))
def test_the_slave_serves_what_a_sync_master_acknowledged(tmp_path: Path, number: int) -> None:
    settings = {"brokerName": "broker-a", "mappedFileSizeCommitLog": str(4 << 20)}
    port = free_port()
    master = BrokerProcess(
        tmp_path / "master",
        {**settings, "listenPort": str(port), "brokerRole": "SYNC_MASTER"},
    )
    slave_settings = {
        **settings,
        "listenPort": str(free_port()),
        "slaveReadEnable": "true",
        "diskMaxUsedSpaceRatio": "95",
    }
    follows = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": f"127.0.0.1:{port + 1}"}
    slave = BrokerProcess(tmp_path / "slave", {**slave_settings, **follows})
    with master, slave:
        caught_up(slave.address, master.address)
        asyncio.run(wait_for_slave(master.address))
        asyncio.run(fill(master.address))
        master.kill()
        asyncio.run(check(slave.address))
        slave.kill()
        promoted = BrokerProcess(
            tmp_path / "slave", {**slave_settings, "brokerRole": "SYNC_MASTER"}
        )
        with promoted:
            asyncio.run(check(promoted.address))


async def wait_for_slave(address: str) -> None:
    """Wait until a slave is connected; only the master's answers show that."""
    async with Session("127.0.0.1:1", timeout=15) as session, asyncio.timeout(PATIENCE):
        while not (await Admin(session).ha_status(address)).in_sync_slave_nums:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.timeout(300)
def test_the_elected_master_serves_what_its_predecessor_acknowledged(tmp_path: Path) -> None:
    brief = {"controllerHeartBeatTimeoutMills": "1500", "brokerHeartbeatInterval": "300"}
    with ExitStack() as parts:
        etcd = parts.enter_context(EtcdServer(tmp_path)).url
        where = parts.enter_context(controller(tmp_path, 1, etcd)).address
        brokers = [
            parts.enter_context(member(tmp_path, number, where, **brief)) for number in (1, 2)
        ]
        old = asyncio.run(master_of(where, in_sync=2))
        asyncio.run(fill(old))
        next(one for one in brokers if one.address == old).kill()
        new = asyncio.run(master_of(where, in_sync=1, but=old))
        asyncio.run(check(new))


async def master_of(controller_address: str, in_sync: int, but: str = "") -> str:
    """Wait until a controller names another master, and that serves."""
    async with Session("127.0.0.1:1", timeout=2) as session, asyncio.timeout(PATIENCE):
        admin = Admin(session)
        while True:
            found = (await admin.sync_state(controller_address, [NAME])).replicas_info_table
            state = found.get(NAME)
            address = "" if state is None else state.master_address or ""
            if state is not None and address not in ("", but):
                if len(state.in_sync_replicas) == in_sync and await serves(admin, address):
                    return address
            await asyncio.sleep(0.05)


async def serves(admin: Admin, address: str) -> bool:
    """Whether the broker at an address has taken the role of the master."""
    try:
        return (await admin.broker_config(address))["brokerRole"] == "SYNC_MASTER"
    except MQError:
        return False
