"""Masters and slaves in this process, and scripted peers of the replication port."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.daemons.peer import PATIENCE, Peer
from tests.waiting import until

LOG_FILE = 65536
SMALL = {
    "mappedFileSizeCommitLog": str(LOG_FILE),
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "listenPort": "0",
    "diskMaxUsedSpaceRatio": "95",
}
OFFSET = struct.Struct(">q")
HEAD = struct.Struct(">qi")


def settings_of(root: Path, **changes: str) -> BrokerSettings:
    return BrokerSettings.load(None, {**SMALL, "storePathRootDir": str(root), **changes})


@asynccontextmanager
async def master(root: Path, **settings: str) -> AsyncIterator[Broker]:
    """A broker that slaves replicate from, by default ASYNC_MASTER."""
    async with Broker(settings_of(root / "master", **settings)) as broker:
        yield broker


def slave_of(root: Path, its_master: Broker, name: str = "slave", **settings: str) -> Broker:
    """A slave, not started yet, that knows its master."""
    slave = Broker(settings_of(root / name, brokerRole="SLAVE", brokerId="1", **settings))
    follow(slave, its_master)
    return slave


@asynccontextmanager
async def pair(root: Path) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master and its slave."""
    async with master(root) as first, slave_of(root, first) as slave:
        yield first, slave


def follow(slave: Broker, its_master: Broker) -> None:
    slave.master_addresses.set(its_master.address, ha_address(its_master))


def ha_address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.ha_master.port}"


async def caught_up(slave: Broker, its_master: Broker) -> None:
    """Wait until a slave has everything that its master has."""
    await until(lambda: end_of(slave) == end_of(its_master))


def end_of(broker: Broker) -> int:
    return broker.stores.messages.log.written


def content(log: CommitLog, begin: int | None = None) -> bytes:
    """The bytes of a log, from a physical offset on."""
    position = log.minimum if begin is None else begin
    parts = []
    while position < log.written:
        file = log.file_at(position)
        assert file is not None
        end = min(file.end, log.written)
        parts.append(bytes(file.view[position - file.start : end - file.start]))
        position = end
    return b"".join(parts)


def entries(broker: Broker) -> Mapping[tuple[str, int], tuple[int, bytes]]:
    """The end and the entries of each queue."""
    return {
        (queue.topic, queue.queue_id): (queue.readable, _entries(queue))
        for queue in broker.stores.messages.queues
        if queue.readable
    }


def _entries(queue: object) -> bytes:
    parts, index = [], queue.minimum  # type: ignore[attr-defined]
    while raw := queue.entries(index, 1 << 20):  # type: ignore[attr-defined]
        parts.append(raw)
        index += len(raw) // 20
    return b"".join(parts)


async def send(
    peer: Peer, body: bytes, topic: str = "Orders", queue_id: int = 0, properties: str = ""
) -> Command:
    return await peer.ask(
        RequestCode.SEND_MESSAGE_V2,
        {
            **{"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0"},
            **{"g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false"},
            **{"m": "false"},
        },
        body,
    )


class ScriptedSlave:
    """A connection to a replication port that sends what a test wants."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "ScriptedSlave":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def say(self, offset: int) -> None:
        self.writer.write(OFFSET.pack(offset))

    async def frame(self) -> tuple[int, bytes]:
        """The next frame: its physical offset, its bytes."""
        async with asyncio.timeout(PATIENCE):
            offset, size = HEAD.unpack(await self.reader.readexactly(HEAD.size))
            return offset, await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Wait until the master has ended the connection; returns whether it sent nothing."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


Work = Callable[[], Awaitable[None]]
