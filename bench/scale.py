"""The cost of many topics and many connections for our broker."""

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from bench import brokers, driver
from bench.brokers import Daemon
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

TOPICS = 10_000
QUEUES = 4
CONNECTIONS = 5_000
SETTLE_SECONDS = 5.0
_IN_FLIGHT = 200


def rows() -> list[list[str]]:
    """Measure start and memory with ten thousand topics, memory with five thousand idle
    connections.
    """
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd() / ".cache"))
    try:
        broker = brokers.our_broker(folder, {})
        with broker:
            connected = driver.memory_with_connections(broker, CONNECTIONS)
            asyncio.run(_fill(broker))
            time.sleep(SETTLE_SECONDS)
            filled = broker.private_megabytes()
        seconds = broker.start()
        time.sleep(SETTLE_SECONDS)
        started = broker.private_megabytes()
        broker.kill()
    finally:
        shutil.rmtree(folder)
    topics = f"{TOPICS:,} topics x {QUEUES} queues with messages"
    return [
        [f"private memory with {CONNECTIONS:,} idle connections, MB", "", f"{connected:.0f}", ""],
        [f"private memory after making {topics}, MB", "", f"{filled:.0f}", ""],
        [f"restart after SIGKILL with {topics}, s", "", f"{seconds:.2f}", ""],
        ["private memory after that, MB", "", f"{started:.0f}", ""],
    ]


async def _fill(broker: Daemon) -> None:
    """Send a message to each queue; the broker creates the topics."""
    gate = asyncio.Semaphore(_IN_FLIGHT)

    async def send(session: Session, topic: str, queue_id: int) -> None:
        fields = {"a": "P", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(queue_id)}
        fields |= {"f": "0", "g": "0", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
        async with gate:
            reply = await session.invoke(
                broker.address, Command(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 100), 60
            )
        if reply.code:
            raise SystemExit(f"{broker.name} does not take a message: {reply}")

    async with Session("127.0.0.1:1") as session:
        for first in range(0, TOPICS, 100):
            names = [f"topic-{number:05d}" for number in range(first, first + 100)]
            await asyncio.gather(
                *(send(session, name, queue) for name in names for queue in range(QUEUES))
            )
