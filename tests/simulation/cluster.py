"""A simulated cluster: name servers, brokers and clients, each on a machine of its own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from tests.simulation import seams
from tests.simulation.world import Machine, Process, World

NAME_SERVER_PORT = 9876
BROKER_PORT = 10911

# Files so small that they are rolled in every run, and work that is done often.
BROKER_SETTINGS = {
    "listenPort": str(BROKER_PORT),
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "64",
    "maxIndexNum": "200",
    "deleteWhen": "00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
}


@dataclass
class Daemon:
    """A name server or broker that is started again and again on its machine."""

    machine: Machine
    name: str
    make: Callable[[], Any]
    process: Process | None = None
    app: Any = None  # the NameServer or Broker while it serves
    starts: int = 0
    _stop: asyncio.Event | None = None

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def address(self) -> str:
        return self.machine.address

    def start(self) -> None:
        """Start it unless it runs."""
        if self.is_up or not self.machine.has_power:
            return
        self.starts += 1
        self.process = self.machine.start(f"{self.name}#{self.starts}", self._main)

    async def _main(self) -> None:
        process, world = self.process, self.machine.world
        assert process is not None
        stop = self._stop = asyncio.Event()
        app = self.make()
        try:
            async with app:
                self.app = app
                world.tell(process.name, "serves")
                await stop.wait()
                world.tell(process.name, "is asked to stop")
        finally:
            if self.process is process:
                self.app = None

    def terminate(self) -> None:
        """SIGTERM."""
        process, stop = self.process, self._stop
        if process is None or not process.is_alive:
            return
        if self.app is None or stop is None:
            process.kill()  # it has no handler of signals yet
        else:
            self.machine.world.tell(process.name, "gets SIGTERM")
            process.loop.call_soon(stop.set)

    def kill(self) -> None:
        if self.process is not None:
            self.app = None
            self.process.kill()

    def lose_power(self) -> None:
        self.app = None
        self.machine.lose_power()


@dataclass
class Cluster:
    """All machines of a world."""

    world: World
    settings: dict[str, str] = field(default_factory=dict)
    name_servers: list[Daemon] = field(default_factory=list)
    brokers: list[Daemon] = field(default_factory=list)
    clients: list[Machine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hosts = 0

    @property
    def daemons(self) -> list[Daemon]:
        return self.name_servers + self.brokers

    @property
    def name_server_list(self) -> str:
        return ";".join(f"{one.address}:{NAME_SERVER_PORT}" for one in self.name_servers)

    def _machine(self, name: str) -> Machine:
        self._hosts += 1
        disk = seams.make_disk(name)
        machine = Machine(self.world, name, f"10.0.0.{self._hosts}", disk)
        self.world.machines.append(machine)
        return machine

    def add_name_server(self) -> Daemon:
        name = f"namesrv-{len(self.name_servers) + 1}"
        machine = self._machine(name)

        def make() -> NameServer:
            settings = {
                "listenPort": str(NAME_SERVER_PORT),
                "bindAddress": machine.address,
                "kvConfigPath": f"/sim/{name}/kvConfig.json",
                "configStorePath": f"/sim/{name}/namesrv.properties",
            }
            return NameServer(NamesrvSettings.load(None, settings))

        daemon = Daemon(machine, name, make)
        self.name_servers.append(daemon)
        return daemon

    def add_broker(self, **settings: str) -> Daemon:
        name = f"broker-{'abcdefgh'[len(self.brokers)]}"
        machine = self._machine(name)

        def make() -> Broker:
            given = {
                **BROKER_SETTINGS,
                "brokerName": name,
                "brokerIP1": machine.address,
                "namesrvAddr": self.name_server_list,
                "storePathRootDir": f"/sim/{name}/store",
                **self.settings,
                **settings,
            }
            return Broker(BrokerSettings.load(None, given))

        daemon = Daemon(machine, name, make)
        self.brokers.append(daemon)
        return daemon

    def add_client(self, name: str) -> Machine:
        machine = self._machine(name)
        self.clients.append(machine)
        return machine

    def start(self) -> None:
        for daemon in self.daemons:
            daemon.start()
