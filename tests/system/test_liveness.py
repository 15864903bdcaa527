"""Beacons: how soon a dead or suspended broker process leaves the routes."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from mq.client.admin import Admin
from mq.client.transport.session import Session
from mq.daemons.beacon import Beacon
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import TopicConfig
from tests.processes import stand_still
from tests.system.daemon import BrokerProcess

PATIENCE = 20.0
SOON = 3.0  # seconds; Java takes 120
LATE = 8.0  # what a slow machine may add

Script = Callable[[NameServer, BrokerProcess], Awaitable[None]]


async def until(condition: Callable[[], bool], patience: float = PATIENCE) -> float:
    """Wait until the tables of the name server show a state; returns the seconds it took."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while not condition():
        assert loop.time() - begin < patience
        await asyncio.sleep(0.02)
    return loop.time() - begin


def with_broker(tmp_path: Path, script: Script, enabled: bool = True) -> None:
    async def main() -> None:
        settings = NamesrvSettings.load(
            None, {"listenPort": "0", "kvConfigPath": str(tmp_path / "kvConfig.json")}
        )
        async with NameServer(settings) as server:
            broker = BrokerProcess(
                tmp_path / "store",
                {
                    "namesrvAddr": server.address,
                    "livenessBeaconEnable": "true" if enabled else "false",
                },
            )
            try:
                await asyncio.to_thread(broker.start)
                await script(server, broker)
            finally:
                broker.kill()

    asyncio.run(main())


def pid_of(broker: BrokerProcess) -> int:
    assert broker._process is not None
    return broker._process.pid


def expected(server: NameServer) -> bool:
    return any(live.last_beacon is not None for live in server.routes.live.values())


def test_a_killed_broker_leaves_the_routes_within_three_seconds(tmp_path: Path) -> None:
    async def script(server: NameServer, broker: BrokerProcess) -> None:
        await until(lambda: expected(server))
        os.kill(pid_of(broker), signal.SIGKILL)
        assert await until(lambda: not server.routes.live) < SOON + LATE
        assert server.routes.route("TBW102") is None

    with_broker(tmp_path, script)


def test_a_suspended_broker_leaves_the_routes_and_returns_when_it_resumes(tmp_path: Path) -> None:
    async def script(server: NameServer, broker: BrokerProcess) -> None:
        await until(lambda: expected(server))
        stand_still(pid_of(broker))
        assert await until(lambda: not server.routes.live) < SOON + 1 + LATE
        os.kill(pid_of(broker), signal.SIGCONT)
        # Its connection was closed, so it registers again at once, not after 30 s.
        assert await until(lambda: expected(server)) < PATIENCE
        assert server.routes.route("TBW102") is not None

    with_broker(tmp_path, script)


def test_topics_created_while_a_broker_is_suspended_have_routes_like_others(
    tmp_path: Path,
) -> None:
    async def script(server: NameServer, broker: BrokerProcess) -> None:
        await until(lambda: expected(server))
        before = set(server.routes.topics)
        stand_still(pid_of(broker))
        async with Session(server.address) as session:
            made = [f"made-{number}" for number in range(3)]
            waiting = [
                asyncio.create_task(
                    Admin(session).create_topic(broker.address, TopicConfig(topic_name=name))
                )
                for name in made
            ]
            await until(lambda: not server.routes.live)
            os.kill(pid_of(broker), signal.SIGCONT)
            everything = before | set(made)
            assert await until(lambda: set(server.routes.topics) == everything) < 2 + LATE
            await asyncio.wait(waiting)
            [task.exception() for task in waiting]  # they gave up meanwhile
        assert await until(lambda: expected(server)) < PATIENCE
        assert set(server.routes.topics) == everything

    with_broker(tmp_path, script)


def test_a_broker_without_beacons_is_not_removed(tmp_path: Path) -> None:
    async def script(server: NameServer, broker: BrokerProcess) -> None:
        await until(lambda: bool(server.routes.live))
        (live,) = server.routes.live.values()
        assert live.beacon_source is None
        # A made-up beacon for it creates no expectation, either.
        name, cluster = "any", "DefaultCluster"
        made_up = Beacon(cluster, name, 0, broker.address, "0123456789abcdef").encode()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(made_up, ("127.0.0.1", server.port))
            stand_still(pid_of(broker))
            await asyncio.sleep(SOON + 1)  # nothing must happen, so there is no event
        assert broker.address in server.routes.live
        os.kill(pid_of(broker), signal.SIGCONT)

    with_broker(tmp_path, script, enabled=False)
