"""Replica sets of brokers in this process, with scripted controllers and slaves."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.replication.controlled import ControlledRole, OnMembers
from mq.daemons.broker.replication.sync_state import SyncState
from tests.daemons.broker.replication.pair import ha_address, settings_of
from tests.daemons.peer import PATIENCE, Peer

ALL_ACK = {"allAckInSyncStateSet": "true"}


class ScriptedControllers:
    """Controllers that agree to everything at once, unless ``gate`` is cleared or ``failure`` set.

    ``asked`` has the requests.
    """

    def __init__(self, members: Iterable[int] = (1,), epoch: int = 1) -> None:
        self.members = frozenset(members)
        self.epoch = epoch
        self.asked: list[tuple[frozenset[int], int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.tell: OnMembers = lambda members, epoch: None

    async def alter(self, members: frozenset[int], epoch: int) -> tuple[frozenset[int], int]:
        self.asked.append((members, epoch))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.members, self.epoch = members, self.epoch + 1
        return self.members, self.epoch

    def may_answer(self) -> bool:
        return True

    def on_members(self, callback: OnMembers) -> None:
        self.tell = callback


@asynccontextmanager
async def set_master(
    root: Path,
    controllers: ScriptedControllers,
    epoch: int = 1,
    broker_id: int = 1,
    /,
    **settings: str,
) -> AsyncIterator[Broker]:
    """The master of a set; its store is in a folder named after its id."""
    role = ControlledRole(
        broker_id=broker_id,
        is_master=True,
        master_id=broker_id,
        master_epoch=epoch,
        master_address="",
        master_ha_address="",
        members=controllers.members,
        members_epoch=controllers.epoch,
    )
    changes = {"brokerRole": "SYNC_MASTER", **ALL_ACK, **settings}
    given = settings_of(root / str(broker_id), **changes)
    async with Broker(given, role, controllers) as broker:
        yield broker


def set_slave(
    root: Path, its_master: Broker, broker_id: int = 2, folder: str = "", /, **settings: str
) -> Broker:
    """A slave, not started yet, of a master of `set_master`."""
    role = ControlledRole(
        broker_id=broker_id,
        is_master=False,
        master_id=1,
        master_epoch=1,
        master_address=its_master.address,
        master_ha_address=ha_address(its_master),
        members=frozenset(),
        members_epoch=0,
    )
    changes = {"brokerRole": "SLAVE", "brokerId": str(broker_id), **ALL_ACK, **settings}
    given = settings_of(root / (folder or str(broker_id)), **changes)
    return Broker(given, role, ScriptedControllers())


class ScriptedMember:
    """A slave of a set at the protocol level, independent of the tested code."""

    def __init__(self, port: int, broker_id: int = 2) -> None:
        self._port = port
        self._id = broker_id

    async def __aenter__(self) -> "ScriptedMember":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def handshake(
        self, *, last_file: int = 0, learner: int = 0
    ) -> tuple[int, list[list[int]]]:
        """Send the handshake; returns the end of the master's log, and its epochs."""
        self.writer.write(struct.pack(">ihhq", 1, last_file, learner, self._id))
        async with asyncio.timeout(PATIENCE):
            state, size, end, last = struct.unpack(">iiqi", await self.reader.readexactly(20))
            body = await self.reader.readexactly(size)
        assert state == 1
        epochs = [list(each) for each in struct.iter_unpack(">iq", body)]
        assert last == (epochs[-1][0] if epochs else -1)
        return end, epochs

    def say(self, offset: int) -> None:
        self.writer.write(struct.pack(">iq", 2, offset))

    async def frame(self) -> tuple[int, tuple[int, int], int, bytes]:
        """The next frame: its offset, its epoch, the confirm offset, its bytes."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readexactly(36)
            state, size, offset, epoch, start, confirmed = struct.unpack(">iiqiqq", head)
            assert state == 2
            return offset, (epoch, start), confirmed, await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Wait until the master has ended the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass
        return True


@asynccontextmanager
async def empty_member(its_master: Broker, broker_id: int = 2) -> AsyncIterator[ScriptedMember]:
    """A slave that has sent its handshake, and that it is empty."""
    async with ScriptedMember(its_master.ha_master.port, broker_id) as slave:
        await slave.handshake()
        slave.say(0)
        yield slave


@asynccontextmanager
async def asked_set(
    root: Path, controllers: ScriptedControllers, **settings: str
) -> AsyncIterator[tuple[Broker, Peer]]:
    """The master of a set, which waits long for its slaves by default, and a client of it."""
    changes = {"slaveTimeout": "20000", **settings}
    async with set_master(root, controllers, **changes) as first, Peer(first.port) as peer:
        yield first, peer


@asynccontextmanager
async def followed_set(
    root: Path, controllers: ScriptedControllers, **settings: str
) -> AsyncIterator[tuple[Broker, Peer, ScriptedMember]]:
    """As above, with a slave of `empty_member`."""
    async with (
        asked_set(root, controllers, **settings) as (first, peer),
        empty_member(first) as slave,
    ):
        yield first, peer, slave


def state_of(its_master: Broker) -> SyncState:
    assert its_master.replication.state is not None
    return its_master.replication.state


def shown(broker: Broker, queue_id: int = 0) -> int:
    """The end of a queue for consumers."""
    return broker.stores.messages.max_offset("Orders", queue_id)


async def follow(slave: ScriptedMember) -> None:
    """Acknowledge received bytes, until cancelled."""
    while True:
        offset, *_, data = await slave.frame()
        if data:
            slave.say(offset + len(data))
