"""A real broker, and a name server that names it for every topic."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from tests.client.scripted import name_server, scripted

BROKER_NAME = "broker-a"


class Served(NamedTuple):
    """A broker and the address of its name server."""

    broker: Broker
    namesrv: str


@asynccontextmanager
async def served(root: Path, **settings: str) -> AsyncIterator[Served]:
    """Run a broker on the store at `root` until the block ends."""
    fixed = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": str(root)}
    fixed["brokerName"] = BROKER_NAME
    async with Broker(BrokerSettings.load(None, {**fixed, **settings})) as broker:
        async with scripted(name_server({BROKER_NAME: broker.address})) as address:
            yield Served(broker, address)
