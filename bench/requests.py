"""The cost of requests other than plain sends and pulls for a broker: `python -m bench.requests`.

Java's broker (4.9.7; 5.5.0 for pops, which 4.9 does not have) and ours get the same frames, over
four connections with 32 in flight on each. A row is the broker's processor time per request,
including its later work: a delayed message is delivered within the measured time. The driver is
written in Python and uses more processor time than either broker, so rates would measure the
driver.
"""

import argparse
import asyncio
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path

from tabulate import tabulate

from bench import brokers
from bench import request_kinds as kinds
from bench.brokers import Daemon
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.frame import decode, encode

CONNECTIONS, WINDOW = 4, 32
WARM_ROUNDS = 3  # of plain sends, for Java's compilers
DELIVERY_SECONDS = 6.0  # a delay of one second, and a margin
POP_RELEASE = "5.5.0"
POPS_AT_ONCE = 32

BROKER = "broker-a"

Make = Callable[[Path, dict[str, object]], Daemon]
Script = Callable[["Measured"], Coroutine[None, None, None]]


class Connection:
    """Sends requests with a limited window, and reads the replies; requests of the broker are
    dropped.
    """

    async def open(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)

    def close(self) -> None:
        self._writer.close()

    async def ask(self, requests: Sequence[Command]) -> list[Command]:
        """Return the replies, in the order of the requests."""
        places = asyncio.Semaphore(WINDOW)
        replies: dict[int, Command] = {}

        async def read() -> None:
            while len(replies) < len(requests):
                (length,) = struct.unpack(">i", await self._reader.readexactly(4))
                reply = decode(await self._reader.readexactly(length))
                if reply.is_response:
                    replies[reply.opaque] = reply
                    places.release()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            for number, request in enumerate(requests):
                await places.acquire()
                request.opaque = number
                self._writer.write(encode(request))
        return [replies[number] for number in range(len(requests))]


class Measured:
    """A measured broker, and the cost of each row in us of its processor per request."""

    def __init__(self, broker: Daemon, count: int) -> None:
        self.broker = broker
        self.count = count
        self.rows: dict[str, float] = {}

    async def ask(self, requests: Sequence[Command]) -> list[Command]:
        """Send requests over all connections; returns the replies in arbitrary order."""
        connections = [Connection() for _ in range(CONNECTIONS)]
        for connection in connections:
            await connection.open(self.broker.port)
        shares = [requests[number::CONNECTIONS] for number in range(CONNECTIONS)]
        asked = (one.ask(share) for one, share in zip(connections, shares, strict=True))
        replies = await asyncio.gather(*asked)
        for connection in connections:
            connection.close()
        return [reply for share in replies for reply in share]

    async def row(
        self, name: str, requests: Sequence[Command], seconds_after: float = 0.0
    ) -> list[Command]:
        """Measure one row; returns the successful replies."""
        before = self.broker.cpu_seconds()
        replies = await self.ask(requests)
        await asyncio.sleep(seconds_after)
        self.note(name, (self.broker.cpu_seconds() - before) / len(requests) * 1e6)
        refused = [reply for reply in replies if reply.code]
        if refused:
            say(f"{self.broker.name}: {name}: {len(refused)} refused, first {refused[0]}")
        return [reply for reply in replies if not reply.code]

    def note(self, name: str, cost: float) -> None:
        self.rows[name] = cost
        say(f"{self.broker.name}: {name}: {cost:.1f} us")


async def requests_of_4(measured: Measured) -> None:
    """Measure all requests of 4.9."""
    count, row, of_queues = measured.count, measured.row, kinds.of_queues
    for _ in range(WARM_ROUNDS):
        await measured.ask(kinds.sends(count))
    sent = await row("plain send", kinds.sends(count))
    await row("send, names of words (10)", kinds.in_words(count))
    await row("send, binary header", kinds.in_binary(count))
    delayed = kinds.sends(count, kinds.DELAYED)
    await row("send with a delay of 1 s, delivered", delayed, DELIVERY_SECONDS)
    halves = kinds.sends(count, kinds.PREPARED, SysFlag.TRANSACTION_PREPARED)
    await row("commit of it", kinds.ends(await row("half of a transaction", halves)))
    await row("message given back, delivered", kinds.given_back(sent), DELIVERY_SECONDS)
    pulls = of_queues(RequestCode.PULL_MESSAGE, count, kinds.pull)
    await row("pull of one message", pulls)
    commits = of_queues(RequestCode.UPDATE_CONSUMER_OFFSET, count, kinds.committed)
    await row("offset committed", commits)
    asked = of_queues(RequestCode.QUERY_CONSUMER_OFFSET, count, kinds.of_group)
    await row("offset asked for", asked)
    by_time = of_queues(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, count, kinds.at_time)
    await row("offset by time", by_time)
    await row("heartbeat", [kinds.heartbeat(number) for number in range(count)])


async def pops(measured: Measured) -> None:
    """Measure pops of 32 messages and single acknowledgements, per message."""
    for _ in range(2 + WARM_ROUNDS):  # more than is popped
        await measured.ask(kinds.sends(measured.count))
    connections = [Connection() for _ in range(CONNECTIONS)]
    for connection in connections:
        await connection.open(measured.broker.port)
    await _consume(connections, measured.count)  # warm-up
    before = measured.broker.cpu_seconds()
    consumed = await _consume(connections, measured.count)
    cost = (measured.broker.cpu_seconds() - before) / consumed * 1e6
    measured.note("message popped and acknowledged", cost)
    for connection in connections:
        connection.close()


async def _consume(connections: list[Connection], count: int) -> int:
    """Consume at least this number of messages; returns how many."""
    consumed = 0

    async def consume(connection: Connection) -> None:
        nonlocal consumed
        while consumed < count:
            (popped,) = await connection.ask([kinds.pop(POPS_AT_ONCE)])
            if popped.code:
                await asyncio.sleep(0.01)  # other connections are popping
                continue
            acks = kinds.acknowledgements(popped, BROKER)
            consumed += len(acks)
            refused = [reply for reply in await connection.ask(acks) if reply.code]
            if refused:
                say(f"{len(refused)} acknowledgements refused, first {refused[0]}")

    await asyncio.gather(*map(consume, connections))
    return consumed


def say(text: str) -> None:
    print(text, file=sys.stderr)


def run(make: Make, script: Script, count: int) -> Measured:
    """Start a broker on a store of its own, and measure it."""
    settings: dict[str, object] = {"brokerName": BROKER, "defaultTopicQueueNums": kinds.QUEUES}
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd() / ".cache"))
    try:
        with make(folder, settings) as broker:
            measured = Measured(broker, count)
            asyncio.run(script(measured))
            return measured
    finally:
        shutil.rmtree(folder)


def main() -> None:
    brokers.stop_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.requests")
    parser.add_argument("--count", type=int, default=20_000, help="requests of each kind")
    count = parser.parse_args().count
    java_5 = partial(brokers.java_broker, release=POP_RELEASE)
    rows = []
    for theirs, script in ((brokers.java_broker, requests_of_4), (java_5, pops)):
        java, ours = (run(make, script, count).rows for make in (theirs, brokers.our_broker))
        rows += [[name, f"{java[name]:.1f}", f"{ours[name]:.1f}"] for name in java]
    print(tabulate(rows, ["us of CPU a request", "Java", "mq"], "github", disable_numparse=True))


if __name__ == "__main__":
    main()
