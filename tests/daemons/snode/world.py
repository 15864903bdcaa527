"""A name server, brokers and a snode in this process, over real sockets."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.dispatch import Handler
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.snode.app import Snode
from mq.daemons.snode.config import SnodeSettings
from mq.protocol.bodies import BrokerData, TopicConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.client.scripted import scripted
from tests.daemons.peer import Peer
from tests.interop.ports import free_port

T = TypeVar("T")

ENODE = "broker-a"
OTHER = "broker-b"
# Seconds between two checks for an event.
LOOK_SECONDS = 0.01
PATIENCE = 30.0


@dataclass
class World:
    """`port` is the snode's."""

    folder: Path
    name_server: NameServer
    brokers: dict[str, Broker]
    snode: Snode
    parts: AsyncExitStack
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return self.snode.port

    @property
    def broker(self) -> Broker:
        return self.brokers[ENODE]

    def pretend(self, name: str, port: int) -> None:
        """Make name servers return this broker address."""
        addresses = {0: f"127.0.0.1:{port}"}
        data = BrokerData(cluster="DefaultCluster", broker_name=name, broker_addrs=addresses)
        self.name_server.routes.brokers[name] = data

    async def make_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic at every broker; the name server knows it afterwards."""
        for broker in self.brokers.values():
            config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
            await broker.stores.topics.update(config)
            await broker.registration.announced()


def broker_settings(folder: Path, name: str, namesrv: str, **more: str) -> BrokerSettings:
    fixed = {
        **{"listenPort": "0", "haListenPort": "0", "brokerIP1": "127.0.0.1", "brokerName": name},
        **{"storePathRootDir": str(folder / name), "namesrvAddr": namesrv},
    }
    return BrokerSettings.load(None, {**fixed, **more})


def snode_settings(namesrv: str, **more: str) -> SnodeSettings:
    fixed = {
        **{"listenPort": "0", "snodeIP1": "127.0.0.1", "snodeName": "snode-a"},
        **{"namesrvAddr": namesrv, "metricsEnable": "false"},
    }
    return SnodeSettings.load(None, {**fixed, **more})


@asynccontextmanager
async def world(
    folder: Path,
    *,
    names: tuple[str, ...] = (ENODE,),
    brokers: Mapping[str, str] | None = None,
    snode_is: Mapping[str, str] | None = None,
    **settings: str,
) -> AsyncIterator[World]:
    """`brokers` are settings of all brokers, `snode_is` and `settings` those of the snode."""
    settings = {**settings, **(snode_is or {})}
    async with AsyncExitStack() as parts:
        loaded = NamesrvSettings.load(
            None, {"listenPort": "0", "kvConfigPath": str(folder / "kv.json")}
        )
        name_server = await parts.enter_async_context(NameServer(loaded))
        made = {}
        for name in names:
            # Not a port that a connection may get while the broker is stopped.
            fixed = {"listenPort": str(free_port()), **(brokers or {})}
            one = Broker(broker_settings(folder, name, name_server.address, **fixed))
            made[name] = await parts.enter_async_context(one)
        snode = await parts.enter_async_context(
            Snode(snode_settings(name_server.address, **settings))
        )
        yield World(folder, name_server, made, snode, parts, settings)


@asynccontextmanager
async def beside(handler: Handler, folder: Path) -> AsyncIterator[tuple[World, Peer]]:
    """A world whose snode knows another enode, OTHER, which replies to every request by a handler;
    and a client of the snode.
    """
    async with (
        scripted({int(code): handler for code in RequestCode}) as address,
        world(folder) as one,
        Peer(one.port) as peer,
    ):
        one.pretend(OTHER, int(address.split(":")[1]))
        await one.snode.enodes.refresh()
        yield one, peer


async def asked(session: Session, address: str, command: Command) -> Command:
    """The reply, even if the connection must be opened again."""
    while True:
        try:
            return await session.invoke(address, command)
        except MQError:
            await asyncio.sleep(LOOK_SECONDS)


class RunningWorld:
    """A world on a loop in its own thread, for blocking callers; use `world` only on that loop."""

    def __init__(self, folder: Path, names: tuple[str, ...], **settings: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._made = world(folder, names=names, snode_is=settings)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.world: World

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def __enter__(self) -> "RunningWorld":
        self._thread.start()
        self.world = self.run(self._made.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._made.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
