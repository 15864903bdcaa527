"""Messages that are sent one after the other, and the stored messages."""

import asyncio

from mq.client.transport.session import Session
from mq.protocol.command import Command
from tests.system.ledger import QUEUES, read_all, send_command


async def send_each(address: str, names: list[str], size: int) -> list[Command]:
    async with Session("127.0.0.1:1", timeout=10) as session:
        return [
            await session.invoke(address, send_command(name, number % QUEUES, size))
            for number, name in enumerate(names)
        ]


def stored(address: str) -> dict[str, int]:
    return dict(asyncio.run(read_all(address)))
