"""A broker's registration, with our real name servers in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.supervision import Tasks
from tests.daemons.peer import PATIENCE

Script = Callable[["Setup"], Awaitable[None]]


class Setup:
    """Two name servers, a broker's topics and its registration, not yet entered."""

    def __init__(self, root: Path, overrides: dict[str, str]) -> None:
        self.root = root
        self.overrides = overrides
        self.parts = AsyncExitStack()

    async def open(self) -> None:
        self.servers = [await self.name_server(f"ns{number}") for number in range(2)]
        names = ";".join(server.address for server in self.servers)
        overrides = {"brokerName": "broker-a", "namesrvAddr": names} | self.overrides
        self.settings = BrokerSettings.load(None, overrides)
        self.topics = Topics(self.root / "topics.json", self.settings)
        self.tasks = await self.parts.enter_async_context(Tasks())
        self.registration = Registration(self.settings, self.topics, 10911, 10912, self.tasks)

    async def name_server(self, name: str, port: int = 0) -> NameServer:
        settings = NamesrvSettings.load(
            None, {"listenPort": str(port), "kvConfigPath": str(self.root / f"{name}.json")}
        )
        return await self.parts.enter_async_context(NameServer(settings))

    async def first_round(self) -> None:
        await asyncio.wait_for(self.registration.first_round.wait(), PATIENCE)

    async def every_topic_has_a_route(self, server: NameServer) -> None:
        async with asyncio.timeout(PATIENCE):
            while set(server.routes.topics) != set(self.topics.table):
                await self.registration.round_ended()


def run(tmp_path: Path, script: Script, **overrides: str) -> None:
    async def main() -> None:
        setup = Setup(tmp_path, overrides)
        async with setup.parts:
            await setup.open()
            await script(setup)

    asyncio.run(main())
