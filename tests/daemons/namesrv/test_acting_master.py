"""A set without a master: its lowest slave is in routes for reading, and members are notified."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.namesrv.acting_master import MEMBERS_PREFIX
from mq.daemons.namesrv.app import NameServer
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import NotifyMinBrokerIdChangeRequestHeader
from tests.daemons.namesrv.servers import header, register, route, serve, topic
from tests.daemons.peer import PATIENCE, Peer

MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"
MEMBERS = f"{MEMBERS_PREFIX}broker-a"
TOPICS = (topic("T"), topic("U"), topic(MEMBERS, 1))


async def come(
    peer: Peer, number: int, address: str, *, acts: bool | None = True, counter: int = 1
) -> None:
    told = header(address=address, broker_id=number)
    if acts is not None:
        told.enable_acting_master = acts
    await register(peer, *TOPICS, told=told, counter=counter)


async def seen(peer: Peer, name: str = "T") -> tuple[dict[int, str], int] | None:
    """The addresses in the route of a topic, and its permissions."""
    found = await route(peer, name)
    if found is None:
        return None
    (broker,), (queues,) = found.broker_datas, found.queue_datas
    return broker.broker_addrs, queues.perm


def test_the_lowest_slave_is_listed_as_a_read_only_master(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        async with Peer(server.port) as master:
            await come(master, 0, MASTER)
            await come(peer, 1, SLAVE)
            await come(peer, 2, "10.0.0.3:10911")
            third = {2: "10.0.0.3:10911"}
            assert await seen(peer) == ({0: MASTER, 1: SLAVE, **third}, 6)
        await gone(server, MASTER)
        assert await seen(peer) == ({0: SLAVE, **third}, 4)
        assert await seen(peer, MEMBERS) == ({1: SLAVE, **third}, 4)  # unchanged
        await come(peer, 1, SLAVE, counter=2)  # its topics count now, except their write permission
        assert await seen(peer) == ({0: SLAVE, **third}, 4)
        await come(peer, 0, MASTER, counter=2)
        assert await seen(peer) == ({0: MASTER, 1: SLAVE, **third}, 6)
        server.routes.unregister("DefaultCluster", "broker-a", MASTER, 0)
        assert await seen(peer) == ({0: SLAVE, **third}, 4)

    serve(tmp_path, script, supportActingMaster="true")


@pytest.mark.parametrize(
    ("supported", "acts", "perm"), [("false", True, 4), ("true", False, 6), ("true", None, 6)]
)
def test_no_slave_is_listed_as_a_master_unless_both_sides_enable_it(
    supported: str, acts: bool | None, perm: int, tmp_path: Path
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await come(peer, 0, MASTER, acts=acts)
        await come(peer, 1, SLAVE, acts=acts)
        server.routes.unregister("DefaultCluster", "broker-a", MASTER, 0)
        assert await seen(peer) == ({1: SLAVE}, perm)

    serve(tmp_path, script, supportActingMaster=supported)


def test_a_slave_of_5x_that_registers_first_registers_its_topics(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await come(peer, 1, SLAVE, acts=None)
        assert await seen(peer) is None  # before 5.x only their master registers them
        await come(peer, 1, SLAVE, counter=2)
        assert await seen(peer) == ({0: SLAVE}, 4)

    serve(tmp_path, script, supportActingMaster="true")


async def gone(server: NameServer, address: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while address in server.routes.live:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@asynccontextmanager
async def member() -> AsyncIterator[tuple[str, asyncio.Queue[Command]]]:
    """The address of a broker that is notified, and the notifications."""
    told: asyncio.Queue[Command] = asyncio.Queue()

    def take(command: Command, channel: Channel) -> None:
        told.put_nowait(command)

    listener = Listener(Dispatcher({RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: take}), "127.0.0.1", 0)
    async with listener:
        yield f"127.0.0.1:{listener.port}", told


def test_members_are_notified_of_the_lowest_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.namesrv.acting_master.NOTICE_SECONDS", PATIENCE)

    async def script(server: NameServer, peer: Peer) -> None:
        async with member() as (slave, slave_told), member() as (master, master_told):

            async def next_of(told: asyncio.Queue[Command]) -> dict[str, object]:
                async with asyncio.timeout(PATIENCE):
                    command = await told.get()
                assert command.is_one_way
                found = NotifyMinBrokerIdChangeRequestHeader.decode(command.fields)
                return {name: value for name, value in vars(found).items() if value is not None}

            await come(peer, 3, slave)
            await come(peer, 0, master)
            joined = {"min_broker_id": 0, "min_broker_addr": master}
            assert await next_of(slave_told) == {**joined, "ha_broker_addr": "10.0.0.1:10912"}
            server.routes.unregister("DefaultCluster", "broker-a", master, 0)
            left = {"min_broker_id": 3, "min_broker_addr": slave, "offline_broker_addr": master}
            assert await next_of(slave_told) == left
            await come(peer, 0, master)
            assert (await next_of(slave_told))["min_broker_id"] == 0
            server.routes.unregister("DefaultCluster", "broker-a", slave, 3)
            server.routes.unregister("DefaultCluster", "broker-a", master, 0)
            # the lowest was the same, or there was none
            assert slave_told.empty() and master_told.empty()

    serve(tmp_path, script, notifyMinBrokerIdChanged="true")


def test_an_unreachable_member_delays_no_other_notification(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await come(peer, 1, "127.0.0.1:1")
        await come(peer, 0, MASTER)
        assert await seen(peer) == ({0: MASTER, 1: "127.0.0.1:1"}, 6)

    serve(tmp_path, script, notifyMinBrokerIdChanged="true")
