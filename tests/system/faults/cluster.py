"""A cluster whose connections all go through doors that can be shut.

Name servers have a door for the clients and one for each broker, brokers of this project one for
the clients (a Java broker listens on all addresses, so nothing can be in front of it). The test
itself reaches daemons behind their doors.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, Self

from mq.client.transport.caller import route_request
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicConfigSerializeWrapper, TopicRouteData
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.interop import peers
from tests.interop.ports import free_port
from tests.interop.process import Process
from tests.system.daemon import BrokerProcess, NameServerProcess
from tests.system.faults.doors import Door

JAVA = "4.9.7"
# A broker saves its offsets after this time; a consumer commits as often.
OFFSETS_SECONDS = 1.0
_DOORS = "127.0.1"


class Runnable(Protocol):
    """A daemon's process."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> int: ...
    def pause(self) -> None: ...
    def go_on(self) -> None: ...


class JavaBroker(peers.JavaBroker):
    """A process that reports when it is ready; its name servers may be cut off at that time."""

    def start(self) -> None:
        Process.start(self)


class Daemon:
    """A name server or broker: its own address, and the doors through which others reach it."""

    def __init__(
        self,
        name: str,
        process: Runnable,
        backend: str,
        *,
        java: bool,
        doors: Sequence[Door] = (),
    ) -> None:
        self.name = name
        self.process = process
        self.backend = backend
        self.java = java
        self.doors = list(doors)  # the clients' first


class Cluster:
    """Name servers and brokers as processes. An async context manager."""

    def __init__(
        self, folder: Path, *, name_servers: int = 2, brokers: int = 2, java: bool = False
    ) -> None:
        """With `java` also a Java name server and a Java broker."""
        self._folder = folder
        self._java = java
        self._parts = AsyncExitStack()
        broker_names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
        all_brokers = broker_names + (["broker-java"] if java else [])
        self.name_servers: dict[str, Daemon] = {}
        for number in range(name_servers + java):
            self._plan_name_server(number, is_java=number == name_servers, brokers=all_brokers)
        self.brokers: dict[str, Daemon] = {}
        for number, name in enumerate(broker_names):
            self._plan_broker(name, 100 + number, all_brokers.index(name))
        if java:
            self._plan_java_broker(all_brokers.index("broker-java"))

    def _plan_name_server(self, number: int, *, is_java: bool, brokers: list[str]) -> None:
        port = free_port()
        process: Runnable
        if is_java:
            name, outside = "namesrv-java", free_port()
            process = peers.JavaNameServer(JAVA, self._folder, port)
        else:
            name, outside = f"namesrv-{number + 1}", port
            folder = self._folder / name
            folder.mkdir()
            process = NameServerProcess(folder, {"listenPort": str(port)})
        doors = [
            Door(f"{_DOORS}.{10 * (number + 1) + place}", outside, port, datagrams=not is_java)
            for place in range(1 + len(brokers))
        ]
        self.name_servers[name] = Daemon(
            name, process, f"127.0.0.1:{port}", java=is_java, doors=doors
        )

    def _names_for(self, place: int) -> str:
        return ";".join(server.doors[place].address for server in self.name_servers.values())

    def _plan_broker(self, name: str, host: int, place: int) -> None:
        port = free_port()
        door = Door(f"{_DOORS}.{host}", port, port)
        settings = {
            "brokerName": name,
            "bindAddress": "127.0.0.1",
            "brokerIP1": door.host,
            "listenPort": str(port),
            "namesrvAddr": self._names_for(1 + place),
            "flushConsumerOffsetInterval": str(int(OFFSETS_SECONDS * 1000)),
        }
        process = BrokerProcess(self._folder / name, settings)
        self.brokers[name] = Daemon(name, process, f"127.0.0.1:{port}", java=False, doors=[door])

    def _plan_java_broker(self, place: int) -> None:
        settings = {
            "brokerName": "broker-java",
            "flushConsumerOffsetInterval": int(OFFSETS_SECONDS * 1000),
            "registerNameServerPeriod": 10_000,
        }
        process = JavaBroker(JAVA, self._folder, self._names_for(1 + place), settings)
        self.brokers["broker-java"] = Daemon("broker-java", process, process.address, java=True)

    @property
    def names(self) -> str:
        """The name servers' addresses for clients."""
        return self._names_for(0)

    def address(self, broker: str) -> str:
        """A broker's address for clients."""
        daemon = self.brokers[broker]
        return daemon.doors[0].address if daemon.doors else daemon.backend

    def link(self, broker: str, name_server: str) -> Door:
        """The door through which a broker reaches a name server."""
        return self.name_servers[name_server].doors[1 + list(self.brokers).index(broker)]

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as parts:
            daemons = [*self.name_servers.values(), *self.brokers.values()]
            for door in (door for daemon in daemons for door in daemon.doors):
                await door.open()
                parts.push_async_callback(door.close)
            for group in (self.name_servers, self.brokers):
                for daemon in group.values():
                    parts.push_async_callback(asyncio.to_thread, daemon.process.kill)
                await asyncio.gather(
                    *(asyncio.to_thread(daemon.process.start) for daemon in group.values())
                )
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()


class Inside:
    """Queries the daemons of a cluster behind their doors. An async context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._session = Session("127.0.0.1:1", timeout=5)

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def topics(self, broker: str) -> set[str]:
        """All topics of a broker."""
        command = Command(RequestCode.GET_ALL_TOPIC_CONFIG)
        answer = await self._session.call(self._cluster.brokers[broker].backend, command)
        return set(TopicConfigSerializeWrapper.decode(answer.body).topic_config_table)

    async def without_route(
        self, name_server: str, wanted: set[tuple[str, str]]
    ) -> set[tuple[str, str]]:
        """The topics, by broker, for which a name server returns no route."""
        address = self._cluster.name_servers[name_server].backend
        by_topic: dict[str, set[str]] = {}
        for topic, broker in wanted:
            by_topic.setdefault(topic, set()).add(broker)

        async def missing(topic: str, brokers: set[str]) -> set[tuple[str, str]]:
            answer = await self._session.invoke(address, route_request(topic))
            if answer.code != 0:
                return {(topic, broker) for broker in brokers}
            route = TopicRouteData.decode(answer.body)
            alive = {data.broker_name for data in route.broker_datas if data.broker_addrs}
            there = {data.broker_name for data in route.queue_datas} & alive
            return {(topic, broker) for broker in brokers - there}

        parts = await asyncio.gather(*(missing(*entry) for entry in by_topic.items()))
        return set().union(*parts)
