"""Brokers of a replica set in this process, under a controller that a test scripts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.controlled_broker import ControlledBroker
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.daemons.broker.failover.membership.controller import ScriptedController
from tests.daemons.broker.replication.pair import send, settings_of
from tests.daemons.peer import Peer
from tests.interop.ports import free_port
from tests.waiting import until

NAME = "broker-a"
# The answer of the set's master to a stored message.
STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
# A very short lease, for masters that must lose it.
BRIEF = {
    "controllerHeartBeatTimeoutMills": "400",
    "brokerHeartbeatInterval": "50",
    "syncBrokerMetadataPeriod": "100",
}


def member_of(
    root: Path, controller: ScriptedController | str, name: str = "one", **settings: str
) -> ControlledBroker:
    """A broker that is not started yet."""
    address = controller if isinstance(controller, str) else controller.address
    return ControlledBroker(
        settings_of(
            root / name,
            **{
                "enableControllerMode": "true",
                "brokerRole": "SLAVE",
                "brokerId": "-1",
                "controllerAddr": address,
                "listenPort": str(free_port()),
                "brokerHeartbeatInterval": "100",
                "registerNameServerPeriod": "10000",
                **settings,
            },
        )
    )


@asynccontextmanager
async def name_server(root: Path, **settings: str) -> AsyncIterator[NameServer]:
    loaded = NamesrvSettings.load(
        None,
        {
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(root / "kvConfig.json"),
            **settings,
        },
    )
    async with NameServer(loaded) as server:
        yield server


async def is_master(member: ControlledBroker, epoch: int | None = None) -> Broker:
    """Wait until it serves as the master, of an epoch."""
    return await serves_as(member, lambda: _role(member)[0] and epoch in (None, _role(member)[1]))


async def is_slave(member: ControlledBroker, master: str) -> Broker:
    """Wait until it serves as the slave of a master, "" for none."""
    return await serves_as(member, lambda: _role(member) == (False, _role(member)[1], master))


async def serves_as(member: ControlledBroker, holds: Callable[[], bool]) -> Broker:
    await until(lambda: member.broker is not None and holds())
    assert member.broker is not None
    return member.broker


def _role(member: ControlledBroker) -> tuple[bool, int, str]:
    role = None if member.broker is None else member.broker.role
    return (
        (False, -1, "?")
        if role is None
        else (role.is_master, role.master_epoch, role.master_address)
    )


async def code_of_send(broker: Broker, body: bytes = b"hello") -> ResponseCode:
    """The answer of a broker to a message."""
    async with Peer(broker.port) as peer:
        return ResponseCode((await send(peer, body)).code)


async def nobody_listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def ask(port: int, code: RequestCode) -> Command:
    async with Peer(port) as peer:
        return await peer.ask(code)
