"""Brokers of ours under two controllers of ours: any of them may die."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.session import Session
from mq.protocol.bodies import ReplicasInfo
from tests.daemons.controller.etcd_server import EtcdServer
from tests.interop.ports import free_port
from tests.system.controlled_set import (
    NAME,
    PATIENCE,
    member,
    point_to,
    until_all_show_the_same,
    until_more,
)
from tests.system.daemon import ControllerProcess
from tests.system.ledger import SenderProcess, audit

# From kill -9 of both, the leading controller and the master: the lease of the leader (2 s), and a
# controller that has just begun to lead waits to hear of brokers that live.
MOST_SECONDS = 30.0


def controller(tmp: Path, number: int, etcd: str) -> ControllerProcess:
    """One that is found again at its address when it is started again."""
    port = free_port()
    own = {"listenPort": str(port), "controllerAddress": f"127.0.0.1:{port}"}
    settings = {**own, "leaderLeaseSeconds": "2"}
    return ControllerProcess(tmp / f"controller-{number}.log", etcd, settings)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    with EtcdServer(tmp_path) as server:
        yield server.url


def test_the_leading_controller_and_the_master_die_and_nothing_is_lost(
    etcd: str, tmp_path: Path
) -> None:
    address_file = tmp_path / "address"
    with ExitStack() as parts:
        controllers = [parts.enter_context(controller(tmp_path, number, etcd)) for number in (1, 2)]
        where = ";".join(one.address for one in controllers)
        brokers = [parts.enter_context(member(tmp_path, number, where)) for number in (1, 2, 3)]
        state = until(where, lambda found: len(found.in_sync_replicas) == 3)
        address_file.write_text(state.master_address or "")
        sender = SenderProcess(tmp_path, 0, address_file)
        sender.start()
        parts.callback(sender.stop)
        asyncio.run(until_more(sender, 200, PATIENCE))

        leader = asyncio.run(leader_of(where))
        killed_controller = next(one for one in controllers if one.address == leader)
        killed_broker = next(one for one in brokers if one.address == state.master_address)
        began = time.monotonic()
        killed_controller.kill()
        killed_broker.kill()
        old = state.master_address
        state = until(where, lambda found: found.master_address not in (None, "", old))
        point_to(address_file, state.master_address or "")
        asyncio.run(until_more(sender, 1, PATIENCE))
        took = time.monotonic() - began
        killed_controller.start()
        killed_broker.start()
        until(where, lambda found: len(found.in_sync_replicas) == 3)
        asyncio.run(until_more(sender, 200, PATIENCE))
        sender.stop()
        until_all_show_the_same(brokers)
        for broker in brokers:
            audit(tmp_path, broker.address).check()
        assert [broker.stop() for broker in brokers] == [0, 0, 0]
    assert took < MOST_SECONDS


def test_a_master_that_stood_still_acknowledges_nothing_that_is_lost(
    etcd: str, tmp_path: Path
) -> None:
    address_file = tmp_path / "address"
    brief = {"controllerHeartBeatTimeoutMills": "1500", "brokerHeartbeatInterval": "300"}
    with ExitStack() as parts:
        where = parts.enter_context(controller(tmp_path, 1, etcd)).address
        brokers = [
            parts.enter_context(member(tmp_path, number, where, **brief)) for number in (1, 2)
        ]
        state = until(where, lambda found: len(found.in_sync_replicas) == 2)
        old = state.master_address
        address_file.write_text(old or "")
        sender = SenderProcess(tmp_path, 0, address_file)
        sender.start()
        parts.callback(sender.stop)
        asyncio.run(until_more(sender, 200, PATIENCE))
        paused = next(one for one in brokers if one.address == old)
        paused.pause()
        state = until(where, lambda found: found.master_address not in (None, "", old))
        paused.go_on()  # what was sent to it meanwhile is in its buffers, and more comes
        until(where, lambda found: len(found.in_sync_replicas) == 2)
        point_to(address_file, state.master_address or "")
        asyncio.run(until_more(sender, 200, PATIENCE))
        sender.stop()
        until(where, lambda found: len(found.in_sync_replicas) == 2)
        until_all_show_the_same(brokers)
        for broker in brokers:
            audit(tmp_path, broker.address).check()


def until(controllers: str, holds: Callable[[ReplicasInfo], bool]) -> ReplicasInfo:
    """Ask the controllers until something holds of the set."""
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


async def leader_of(controllers: str) -> str:
    async with Session("127.0.0.1:1", timeout=2) as session:
        found = await Admin(session).controller_metadata(controllers.split(";")[0])
        return found.controller_leader_address or ""
