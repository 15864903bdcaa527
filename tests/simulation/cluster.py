"""A simulated cluster: name servers, brokers and clients, each on a machine of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from math import inf
from typing import Any

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.controlled_broker import ControlledBroker
from mq.daemons.controller.app import Controller
from mq.daemons.controller.config import ControllerSettings
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.snode.app import Snode
from mq.daemons.snode.config import SnodeSettings
from tests.simulation import etcd, seams
from tests.simulation.world import Machine, Process, World

NAME_SERVER_PORT = 9876
BROKER_PORT = 10911
CONTROLLER_PORT = 9878
SNODE_PORT = 11911

# The pause before systemd restarts a failed daemon (RestartSec).
RESTART_SECONDS = 2.0

# Faults that stop processes in order, and start them again.
ORDERLY = frozenset({"restart", "terminate"})

# Files so small that they are rolled in every run, and short intervals.
BROKER_SETTINGS = {
    "listenPort": str(BROKER_PORT),
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "64",
    "maxIndexNum": "200",
    "deleteWhen": "00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
}


@dataclass(eq=False)
class Daemon:
    """A name server or broker that is restarted on its machine.

    A failed one is restarted a little later, as by systemd (Restart=on-failure); one that was
    killed or stopped waits for `start`, which the fault calls. `start` during a stop restarts it
    after that.
    """

    machine: Machine
    name: str
    make: Callable[[], Any]
    process: Process | None = None
    app: Any = None  # the NameServer or Broker while it serves
    starts: int = 0
    served_since: float = 0.0  # when `app` started to serve
    stops_since: float | None = None  # when it got SIGTERM
    kills: int = 0  # times that a second SIGTERM, or one during the start, ended it at once
    # When it was asked to stop, and served again (or not yet).
    stops: list[tuple[float, float]] = field(default_factory=list)
    crashes: list[float] = field(default_factory=list)  # when it ended otherwise
    # Called with it and `app` after an orderly stop.
    on_stopped: Callable[["Daemon", Any], None] = lambda daemon, app: None
    settings: dict[str, str] = field(default_factory=dict)  # its own, read by each start
    is_lost: bool = False  # its machine is destroyed
    inherits: "Daemon | None" = None  # the master whose place it has taken
    _stop: asyncio.Event | None = None
    _again: bool = False  # start it when it has ended
    _restart: Any = None  # when systemd will restart it
    _made: Any = None  # `app`, also after a stop

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def address(self) -> str:
        return self.machine.address

    @property
    def locks_since(self) -> float:
        """Since when it knows the locks of queues, -inf if always."""
        return -inf if self.starts == 1 or self.process is None else self.process.started

    @property
    def is_clock_right(self) -> bool:
        """Whether the clocks of all machines that wrote its log were never set."""
        before = self.inherits
        return self.machine.is_clock_right and (before is None or before.is_clock_right)

    def start(self) -> None:
        """Start it unless it runs."""
        if self.is_up:
            self._again = self.stops_since is not None
        if self.is_up or not self.machine.has_power or self.is_lost:
            return
        if self._restart is not None:
            self.machine.world.cancel(self._restart)
        self.starts += 1
        self._again, self._stop, self.stops_since = False, None, None
        process = self.process = self.machine.start(f"{self.name}#{self.starts}", self._main)
        process.on_end = lambda: self._ended(process)

    def _ended(self, process: Process) -> None:
        if self.process is not process:
            return
        if self.stops_since is not None and process.has_returned:
            self.on_stopped(self, self._made)
        else:
            self.crashes.append(self.machine.world.now)
        self.app, self.stops_since = None, None
        world = self.machine.world
        if self._again:
            world.soon(self.start, process.steps)
        elif process.exit is not None:
            self._restart = world.at(world.now + RESTART_SECONDS, self.start)

    async def _main(self) -> None:
        process, world = self.process, self.machine.world
        assert process is not None
        stop = self._stop = asyncio.Event()
        app = self._made = self.make()
        try:
            async with app:
                self.app, self.served_since = app, world.now
                if self.stops and self.stops[-1][1] == inf:
                    self.stops[-1] = self.stops[-1][0], world.now
                world.tell(process.name, "serves")
                await stop.wait()
                world.tell(process.name, "is asked to stop")
        finally:
            if self.process is process:
                self.app = None

    def terminate(self) -> None:
        """SIGTERM. During the start it takes effect after the start; a second one ends the process
        at once.
        """
        process, stop = self.process, self._stop
        if process is None or not process.is_alive:
            return
        self.machine.world.tell(process.name, "gets SIGTERM")
        starting = None if self.app is not None else getattr(self._made, "stop_starting", None)
        if stop is None or self.stops_since is not None:
            self.kills += 1
            process.kill()
        else:
            self.stops_since = self.machine.world.now
            self.stops.append((self.stops_since, inf))
            process.loop.call_soon(stop.set)
            if starting is not None:
                process.loop.call_soon(starting)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()

    def lose_power(self) -> None:
        """End everything on its machine; unsynced data may be lost."""
        if self.machine.has_power:
            self.machine.lose_power()


@dataclass(eq=False)
class Client:
    """A user's program, restarted on its machine until it ends by itself."""

    machine: Machine
    name: str
    main: Callable[[], Coroutine[Any, Any, None]]
    process: Process | None = None
    starts: int = 0
    crashes: int = 0  # ends by a kill or an interruption
    _leaves: bool = False
    _again: bool = False  # start it when it has left

    @property
    def address(self) -> str:
        return self.machine.address

    @property
    def is_done(self) -> bool:
        process = self.process
        return process is not None and not process.is_alive and process.has_returned

    def start(self) -> None:
        if self.process is not None and self.process.is_alive:
            self._again = self._leaves
            return
        if self.is_done or not self.machine.has_power:
            return
        self.starts += 1
        self._leaves = self._again = False
        process = self.process = self.machine.start(f"{self.name}#{self.starts}", self.main)
        process.on_end = lambda: self._ended(process)

    def _ended(self, process: Process) -> None:
        if self.process is process and self._again:
            self.machine.world.soon(self.start, process.steps)

    def terminate(self) -> None:
        """It leaves as an orderly program does."""
        process = self.process
        if process is not None and process.is_alive:
            self.crashes += 1
            self._leaves = True
            self.machine.world.tell(process.name, "gets SIGTERM")
            process.loop.call_soon(process.loop.cancel_main)

    def kill(self) -> None:
        if self.process is not None:
            self.crashes += 1
            self.process.kill()

    def lose_power(self) -> None:
        if self.machine.has_power:
            self.crashes += 1
            self.machine.lose_power()


@dataclass
class Cluster:
    """All machines of a world."""

    world: World
    settings: dict[str, str] = field(default_factory=dict)
    name_servers: list[Daemon] = field(default_factory=list)
    brokers: list[Any] = field(default_factory=list)  # masters, or a `controlled.Face`
    slaves: list[Daemon] = field(default_factory=list)
    # The controlled set: its controllers and members; as one broker it is among `brokers`.
    keepers: list[Daemon] = field(default_factory=list)
    members: list[Daemon] = field(default_factory=list)
    snodes: list[Daemon] = field(default_factory=list)
    clients: list["Client"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hosts = 0

    @property
    def is_orderly(self) -> bool:
        """Whether there were only orderly stops so far."""
        is_forced = any(daemon.kills for daemon in self.daemons)
        return not is_forced and not self.members and self.world.faults.keys() <= ORDERLY

    @property
    def daemons(self) -> list[Daemon]:
        brokers = self.members or self.brokers + self.slaves
        return self.name_servers + self.keepers + brokers + self.snodes

    def circles(self) -> list[tuple[str, list[Machine]]]:
        """Groups of machines from which one may be cut off."""
        name_servers = [one.machine for one in self.name_servers]
        brokers = [one.machine for one in self.members or self.brokers + self.slaves]
        keepers = [one.machine for one in self.keepers]
        clients = [one.machine for one in self.clients]
        found = [
            ("everybody", [*name_servers, *keepers, *brokers, *clients]),
            ("the name servers", name_servers),
            ("the brokers", brokers),
            ("the clients", clients),
        ]
        if keepers:
            found += [
                ("controllers and etcd", keepers),
                ("the brokers and those", keepers + brokers),
            ]
        return found

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
        daemon = self._broker(name, {"brokerName": name, **settings})
        self.brokers.append(daemon)
        return daemon

    def add_slave(self, master: Daemon, number: int, **settings: str) -> Daemon:
        given = {"brokerName": master.name, "brokerRole": "SLAVE", "brokerId": str(number)}
        daemon = self._broker(f"{master.name}-slave-{number}", {**settings, **given})
        self.slaves.append(daemon)
        return daemon

    def replace(self, lost: Daemon, slave: Daemon) -> None:
        """A slave gets the place and the name of its master."""
        self.slaves.remove(slave)
        self.brokers[self.brokers.index(lost)] = slave
        slave.name, slave.inherits = lost.name, lost
        slave.starts = max(slave.starts, lost.starts)
        slave.on_stopped = lost.on_stopped

    def _broker(self, name: str, settings: dict[str, str]) -> Daemon:
        machine = self._machine(name)

        def make() -> Broker:
            return Broker(self._settings(machine, name, settings))

        return Daemon(machine, name, make, settings=settings)

    def _settings(self, machine: Machine, name: str, settings: dict[str, str]) -> BrokerSettings:
        given = {
            **BROKER_SETTINGS,
            "brokerIP1": machine.address,
            "namesrvAddr": self.name_server_list,
            "storePathRootDir": f"/sim/{name}/store",
            **self.settings,
            **settings,
        }
        return BrokerSettings.load(None, given)

    def add_snode(self, **settings: str) -> Daemon:
        """Add a proxy between clients and brokers."""
        name = f"snode-{len(self.snodes) + 1}"
        machine = self._machine(name)

        def make() -> Snode:
            given = {
                "listenPort": str(SNODE_PORT),
                "bindAddress": machine.address,
                "snodeIP1": machine.address,
                "snodeName": name,
                "namesrvAddr": self.name_server_list,
                "rocketmqHome": f"/sim/{name}",
                "metricsEnable": "false",
                **settings,
            }
            return Snode(SnodeSettings.load(None, given))

        daemon = Daemon(machine, name, make)
        self.snodes.append(daemon)
        return daemon

    def add_etcd(self, kept: etcd.Etcd, number: int) -> Daemon:
        """Add a member of etcd."""
        name = f"etcd-{number}"
        machine = self._machine(name)
        daemon = Daemon(machine, name, lambda: etcd.EtcdMember(self.world, kept))
        self.keepers.append(daemon)
        return daemon

    def add_controller(self, number: int, endpoints: list[Daemon]) -> Daemon:
        name = f"controller-{number}"
        machine = self._machine(name)

        def make() -> Controller:
            settings = {
                "listenPort": str(CONTROLLER_PORT),
                "bindAddress": machine.address,
                "configStorePath": f"/sim/{name}/controller.properties",
                "etcdEndpoints": ";".join(f"http://{one.address}:{etcd.PORT}" for one in endpoints),
                **daemon.settings,
            }
            return Controller(ControllerSettings.load(None, settings))

        daemon = Daemon(machine, name, make)
        self.keepers.append(daemon)
        return daemon

    def add_member(self, broker: str, number: int, **settings: str) -> Daemon:
        """Add a broker whose role the controllers decide."""
        name = f"{broker}-{number}"
        machine = self._machine(name)
        given = {"brokerName": broker, "enableControllerMode": "true", **settings}

        def make() -> ControlledBroker:
            return ControlledBroker(self._settings(machine, name, given))

        daemon = Daemon(machine, name, make, settings=given)
        self.members.append(daemon)
        return daemon

    def add_client(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> Client:
        """Add a program on a machine of its own, not started yet."""
        client = Client(self._machine(name), name, main)
        self.clients.append(client)
        return client

    def start(self) -> None:
        for daemon in self.daemons:
            daemon.start()
