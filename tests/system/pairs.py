"""Pairs of a master and a slave, as processes, and comparisons of their data."""

import asyncio
import time
from pathlib import Path

from mq.client.transport.session import Session
from mq.protocol.bodies import KVTable
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.system.ledger import QUEUES, TOPIC

PATIENCE = 60.0


def max_offset(address: str) -> int | None:
    """The end of a broker's log; None if it does not report it.

    A Java broker refuses this request in its first second (StoreStatsService.getPutTps).
    """

    async def ask() -> int | None:
        async with Session("127.0.0.1:1", timeout=10) as session:
            request = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
            reply = await session.invoke(address, request)
            if reply.code != ResponseCode.SUCCESS:
                return None
            return int(KVTable.decode(reply.body).table["commitLogMaxOffset"])

    return asyncio.run(ask())


def caught_up(slave: str, master: str) -> None:
    """Wait until a slave has everything that its master has. There is no event."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found, wanted = max_offset(slave), max_offset(master)
        if found is not None and found == wanted:
            return
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.05)


def assert_equal(one: Path, other: Path) -> None:
    """Compare the logs of two stores byte for byte, and the queues of the topic."""
    logs = [sorted((store / "commitlog").iterdir()) for store in (one, other)]
    names = [[path.name for path in log if path.read_bytes().rstrip(b"\0")] for log in logs]
    assert names[0] == names[1]
    for name in names[0]:
        contents = [(store / "commitlog" / name).read_bytes() for store in (one, other)]
        assert contents[0] == contents[1], name
    for queue_id in range(QUEUES):
        folder = Path("consumequeue") / TOPIC / str(queue_id)
        entries = [
            b"".join(path.read_bytes().rstrip(b"\0") for path in sorted((store / folder).iterdir()))
            for store in (one, other)
        ]
        assert entries[0] and entries[0] == entries[1], queue_id
