"""Replica sets under a Java controller, of one broker of ours and one of Java's, in both roles."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.controlled import ControlledRole
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.interop.jvm import require_java
from tests.interop.member import Member
from tests.interop.peers import JavaBroker, JavaController
from tests.interop.ports import free_port
from tests.system.daemon import NameServerProcess
from tests.system.ledger import QUEUES, TOPIC, send_command
from tests.system.pairs import PATIENCE, assert_equal
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

NAME = "set-a"
RELEASE = "5.5.0"
ALL = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "1"}


P = TypeVar("P", NameServerProcess, JavaController)


class World:
    """A name server, a controller, a Java broker that is not started, and a member of ours."""

    def __init__(self, tmp: Path, names: str, controller: str) -> None:
        self.tmp = tmp
        self.names = names
        self.ha_port = free_port()
        settings = {
            "brokerName": NAME,
            "brokerRole": "SLAVE",
            "brokerId": -1,
            "enableControllerMode": "true",
            "controllerAddr": controller,
            "haListenPort": self.ha_port,
            "slaveReadEnable": "true",
            **ALL,
        }
        self.java = JavaBroker(RELEASE, tmp, names, settings, store=tmp / "java")
        self.port = free_port()
        self.member = Member(controller, NAME, f"127.0.0.1:{self.port}")

    @asynccontextmanager
    async def ours(self) -> AsyncIterator[Broker]:
        """Our broker in the role assigned by the controller."""
        await self.until_role(lambda role: True)
        role = await self.member.role(f"127.0.0.1:{self.ha_port}")
        assert role is not None
        changes = {"brokerRole": "SYNC_MASTER" if role.is_master else "SLAVE"}
        if not role.is_master:
            changes["brokerId"] = str(role.broker_id)
        given = {
            "brokerName": NAME,
            "brokerIP1": "127.0.0.1",
            "listenPort": str(self.port),
            "namesrvAddr": self.names,
            "storePathRootDir": str(self.tmp / "ours"),
            "mappedFileSizeCommitLog": str(64 << 20),
            "diskMaxUsedSpaceRatio": "95",
            **ALL,
            **changes,
        }
        async with Broker(BrokerSettings.load(None, given), role, self.member) as broker:
            self.report(broker)
            yield broker

    def report(self, broker: Broker) -> None:
        """Report a broker's log position to the controller with the next heartbeat."""
        self.member.says = {
            "epoch": broker.replication.last_epoch,
            "maxOffset": broker.stores.messages.max_physical_offset,
            "confirmOffset": broker.replication.confirmed,
        }

    async def until_role(self, holds: Callable[[ControlledRole], bool]) -> None:
        """Wait until the controller has assigned a role that satisfies a condition."""

        async def is_so() -> bool:
            role = await self.member.role()
            return role is not None and holds(role)

        await until(is_so)

    async def until_in_sync(self, members: set[int]) -> None:
        await self.until_role(lambda role: role.members == members)

    async def until_master(self, broker_id: int) -> None:
        await self.until_role(lambda role: role.master_id == broker_id)


@asynccontextmanager
async def world(tmp: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as parts:
        names = await enter(parts, NameServerProcess(tmp / "names"))
        controller = await enter(parts, JavaController(RELEASE, tmp))
        made = World(tmp, names.address, controller.address)
        await parts.enter_async_context(made.member)
        parts.push_async_callback(asyncio.to_thread, made.java.kill)
        yield made


async def enter(parts: AsyncExitStack, process: P) -> P:
    await asyncio.to_thread(process.__enter__)
    parts.push_async_callback(asyncio.to_thread, process.__exit__, None, None, None)
    return process


async def send(address: str, count: int, first: int = 0, size: int = 900) -> None:
    """Send messages; each must be acknowledged."""
    assert await answers(address, count, first, size) == {ResponseCode.SUCCESS}


async def answers(address: str, count: int, first: int = 0, size: int = 900) -> set[int]:
    """Return the response codes of the sends."""
    async with Session("127.0.0.1:1", timeout=15) as session:
        sent = [
            session.request(address, send_command(f"id-{number:06d}", number % QUEUES, size))
            for number in range(first, first + count)
        ]
        return {answer.code for answer in await asyncio.gather(*sent)}


async def first_send(address: str) -> None:
    """Send the first message, which creates the topic; Java accepts it only as the master."""
    async with Session("127.0.0.1:1", timeout=15) as session, asyncio.timeout(PATIENCE):
        while True:
            reply = await session.invoke(address, send_command("first", 0, 100))
            if reply.code == ResponseCode.SUCCESS:
                return
            await asyncio.sleep(0.2)


async def ends(address: str) -> list[int]:
    """Return the ends of the topic's queues that consumers see."""
    async with Session("127.0.0.1:1", timeout=15) as session:
        asked = [
            Command(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue_id)})
            for queue_id in range(QUEUES)
        ]
        replies = [await session.invoke(address, one) for one in asked]
    return [int(reply.fields.get("offset", -1)) for reply in replies]


async def until_equal(one: str, other: str) -> None:
    async def are_equal() -> bool:
        return await ends(one) == await ends(other)

    await until(are_equal)


def assert_same_epochs(tmp: Path) -> None:
    """Compare Java's file with ours byte for byte."""
    files = [(tmp / store / "epochFileCheckpoint").read_bytes() for store in ("java", "ours")]
    assert files[0] == files[1]


def test_our_slave_joins_a_java_master_and_succeeds_it(tmp_path: Path) -> None:
    """A Java master has a slave of ours and dies; ours becomes the master, and Java's its slave."""
    require_java()

    async def main() -> None:
        async with world(tmp_path) as set_a:
            java, member = set_a.java, set_a.member
            await asyncio.to_thread(java.start)
            await first_send(java.address)
            await send(java.address, 300)
            await member.join()
            assert member.id == 2
            async with set_a.ours() as slave:
                await set_a.until_in_sync({1, 2})
                await send(java.address, 300, 300)  # waits for both
                set_a.report(slave)
                log = slave.stores.messages.log
                assert slave.replication.last_epoch == 1

                async def is_confirmed() -> bool:
                    return slave.replication.confirmed == log.written

                await until(is_confirmed)
                assert await ends(slave.address) == await ends(java.address)
                await asyncio.to_thread(java.kill)
            await set_a.until_master(2)
            async with set_a.ours() as master:
                assert master.replication.last_epoch == 2
                assert sum(await ends(master.address)) == 601  # every acknowledged message
                await send(master.address, 100, 600)  # the only member in sync
                await asyncio.to_thread(java.start)
                await set_a.until_in_sync({1, 2})
                await send(master.address, 200, 700, size=40_000)
                await until_equal(java.address, master.address)
                await asyncio.sleep(1.5)  # until Java has its queues on the disk; there is no event
                await asyncio.to_thread(java.stop)
        assert_equal(tmp_path / "java", tmp_path / "ours")
        assert_same_epochs(tmp_path)

    asyncio.run(main())


@pytest.mark.long
def test_our_former_master_truncates_records_that_a_java_master_lacks(tmp_path: Path) -> None:
    require_java()

    async def main() -> None:
        async with world(tmp_path) as set_a:
            java, member = set_a.java, set_a.member
            await member.join()
            await member.elect()
            async with set_a.ours() as master:
                await send(master.address, 300)
                await asyncio.to_thread(java.start)
                await set_a.until_in_sync({1, 2})
                await send(master.address, 300, 300)
                java.pause()
                codes = await answers(master.address, 40, 600, size=1_000_000)
                assert codes <= {ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SUCCESS}
                assert ResponseCode.FLUSH_SLAVE_TIMEOUT in codes
                set_a.report(master)
            member.die()
            java.go_on()
            await set_a.until_master(2)
            await first_send(java.address)
            await member.live()
            async with set_a.ours() as slave:
                await set_a.until_in_sync({1, 2})
                assert slave.replication.last_epoch == 2
                kept = list((tmp_path / "ours" / "damaged").iterdir())
                assert sum(path.stat().st_size for path in kept) > 10_000_000
                await send(java.address, 300, 700)
                await until_equal(slave.address, java.address)
                await asyncio.sleep(1.5)
                await asyncio.to_thread(java.stop)
        assert_equal(tmp_path / "java", tmp_path / "ours")
        assert_same_epochs(tmp_path)

    asyncio.run(main())
