"""Brokers under a controller, both of this project, that are suspended for a while."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.bodies import ReplicasInfo
from mq.protocol.codes import ResponseCode
from tests.daemons.controller.etcd_server import EtcdServer
from tests.system.controlled_set import (
    NAME,
    PATIENCE,
    controller,
    member,
    point_to,
    until_all_show_the_same,
)
from tests.system.daemon import BrokerProcess
from tests.system.ledger import SenderProcess, audit, send_command

# Elections and joins take their time on a busy machine; this limit is for hanging ones.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    with EtcdServer(tmp_path) as server:
        yield server.url


def test_a_suspended_master_acknowledges_no_message_that_is_lost(etcd: str, tmp_path: Path) -> None:
    address_file = tmp_path / "address"
    brief = {"controllerHeartBeatTimeoutMills": "1500", "brokerHeartbeatInterval": "300"}
    with ExitStack() as parts:
        where = parts.enter_context(controller(tmp_path, 1, etcd)).address
        brokers = [
            parts.enter_context(member(tmp_path, number, where, **brief)) for number in (1, 2)
        ]
        state = until(where, lambda found: len(found.in_sync_replicas) == 2)
        point_to(address_file, state.master_address or "")
        sender = SenderProcess(tmp_path, 0, address_file)
        sender.start()
        parts.callback(sender.stop)
        asyncio.run(until_more_from(sender, where, address_file))
        old = until(where, lambda found: len(found.in_sync_replicas) == 2).master_address
        paused = next(one for one in brokers if one.address == old)
        paused.pause()
        until(where, lambda found: found.master_address not in (None, "", old))
        paused.go_on()  # its buffers have data that was sent meanwhile, and more arrives
        until(where, lambda found: len(found.in_sync_replicas) == 2)
        asyncio.run(until_more_from(sender, where, address_file))
        sender.stop()
        until(where, lambda found: len(found.in_sync_replicas) == 2)
        until_all_show_the_same([broker.address for broker in brokers])
        for broker in brokers:
            audit(tmp_path, broker.address).check()


def test_messages_buffered_at_a_suspended_master_are_not_acknowledged_when_it_resumes(
    etcd: str, tmp_path: Path
) -> None:
    """If not all members have to acknowledge: another master was elected, and lacks it."""
    brief = {"controllerHeartBeatTimeoutMills": "1500", "brokerHeartbeatInterval": "300"}
    settings = {**brief, "allAckInSyncStateSet": "false", "slaveTimeout": "500"}
    with ExitStack() as parts:
        where = parts.enter_context(controller(tmp_path, 1, etcd)).address
        brokers = [
            parts.enter_context(member(tmp_path, number, where, **settings)) for number in (1, 2)
        ]
        answer = asyncio.run(send_while_paused(brokers, where))
    assert answer != ResponseCode.SUCCESS


async def send_while_paused(brokers: Sequence[BrokerProcess], where: str) -> int | None:
    """The reply to a message that reached a master while it was suspended, after another
    acknowledged one; None for the end of the connection.
    """
    async with Session("127.0.0.1:1", timeout=PATIENCE) as session:
        paused = await taking(brokers, where, session)
        paused.pause()
        lies = session.request(paused.address, send_command("lies", 0, 100))
        await asyncio.to_thread(
            until, where, lambda found: found.master_address not in (None, "", paused.address)
        )
        paused.go_on()
        try:
            return (await lies).code
        except MQError:
            return None


async def taking(brokers: Sequence[BrokerProcess], where: str, session: Session) -> BrokerProcess:
    """The master, which has just acknowledged a message; on a busy machine it may have changed."""
    async with asyncio.timeout(PATIENCE):
        while True:
            state = await asyncio.to_thread(until, where, lambda it: len(it.in_sync_replicas) == 2)
            found = next((one for one in brokers if one.address == state.master_address), None)
            if found is not None:
                first = await session.invoke(found.address, send_command("first", 0, 100))
                if first.code == ResponseCode.SUCCESS:
                    return found


async def until_more_from(sender: SenderProcess, where: str, address_file: Path) -> None:
    """Wait until the current master has acknowledged 200 more messages: if heartbeats are late, as
    on a busy machine, another one is elected although none was suspended.
    """
    wanted = sender.acknowledged + 200
    async with asyncio.timeout(PATIENCE):
        while sender.acknowledged < wanted:
            state = await state_of(where)
            if state is not None and state.master_address:
                point_to(address_file, state.master_address)
            await asyncio.sleep(0.05)


def until(controllers: str, holds: Callable[[ReplicasInfo], bool]) -> ReplicasInfo:
    """Ask the controllers until a condition on the set holds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = asyncio.run(state_of(controllers))
        if found is not None and holds(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


async def state_of(controllers: str) -> ReplicasInfo | None:
    async with Session("127.0.0.1:1", timeout=2) as session:
        for address in controllers.split(";"):
            try:
                found = await Admin(session).sync_state(address, [NAME])
            except MQError:
                continue
            return found.replicas_info_table.get(NAME)
    return None
