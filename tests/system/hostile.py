"""Connections that try to take a broker down.

    python -m tests.system.hostile ADDRESS COUNT SECONDS

Each of them repeats one kind of attack, and reconnects when it is closed. Prints the count of each
kind. It runs at a low priority: the test measures the cost of its requests for the broker, not that
of creating them.
"""

import asyncio
import contextlib
import json
import os
import resource
import struct
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.frame import encode

PAUSE = 1.0  # between two attacks of a connection, in seconds
HELD = 1024 * 1024  # bytes of a half frame

SEND = {
    **{"a": "P", "b": "Hostile", "c": "TBW102", "d": "4", "e": "0", "f": "0"},
    **{"g": "1700000000000", "h": "0", "j": "0", "k": "false", "m": "true"},
}
PULL = {
    **{"consumerGroup": "TOOLS_CONSUMER", "topic": "Hostile", "queueId": "0", "queueOffset": "0"},
    **{"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "20000"},
    **{"subscription": "*", "subVersion": "0", "expressionType": "TAG"},
}


def half_frame(number: int) -> Iterator[bytes]:
    """A large send that never ends."""
    yield encode(Command(RequestCode.SEND_MESSAGE_V2, SEND, bytes(2 * HELD)))[:HELD]


def giant_batch(number: int) -> Iterator[bytes]:
    """Many messages that should get large properties each."""
    one = struct.pack(">iiiiih", 23, 0, 0, 0, 1, 0)
    batch = (one[:20] + b"x" + one[20:]) * 4000
    fields = {**SEND, "i": "p\x01" + 30_000 * "y"}
    while True:
        yield encode(Command(RequestCode.SEND_MESSAGE_V2, fields, batch))


def unread_pulls(number: int) -> Iterator[bytes]:
    """Requests for very much data, none of which is read."""
    while True:
        yield encode(Command(RequestCode.PULL_MESSAGE, PULL)) * 100


def deep_json(number: int) -> Iterator[bytes]:
    """A header and bodies that are nested, and one of nonstandard JSON."""
    deep = b"[" * 20_000
    while True:
        yield struct.pack(">iI", 4 + len(deep), len(deep)) + deep
        yield encode(Command(RequestCode.HEART_BEAT, {}, b'{"a":' * 20_000))
        yield encode(Command(RequestCode.HEART_BEAT, {}, b"{'a':1," + b'"b":"c",' * 20_000))


def large_heartbeats(number: int) -> Iterator[bytes]:
    """Thousands of groups, and as many as are allowed."""
    while True:
        yield heartbeat(number, 3000)
        yield heartbeat(number, 1000)


def heartbeat(number: int, count: int) -> bytes:
    groups = [
        {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": f"hostile-{number % 10}-{index}",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [{"topic": "Hostile", "subString": "*", "subVersion": 1}],
        }
        for index in range(count)
    ]
    told = {"clientID": f"hostile@{number}", "consumerDataSet": groups, "producerDataSet": []}
    return encode(Command(RequestCode.HEART_BEAT, {}, json.dumps(told).encode()))


KINDS: tuple[Callable[[int], Iterator[bytes]], ...] = (
    half_frame,
    giant_batch,
    unread_pulls,
    deep_json,
    large_heartbeats,
)


async def harm(host: str, port: int, number: int, counts: Counter[str]) -> None:
    """Repeat one kind until cancelled."""
    kind = KINDS[number % len(KINDS)]
    while True:
        with contextlib.suppress(OSError):  # includes TimeoutError
            async with connected(host, port) as writer:
                for data in kind(number):
                    if writer.transport.is_closing():
                        break
                    writer.write(data)
                    async with asyncio.timeout(PAUSE):
                        await writer.drain()
                    counts[kind.__name__] += 1
                    await asyncio.sleep(PAUSE)
                while kind is half_frame and not writer.transport.is_closing():  # noqa: ASYNC110
                    await asyncio.sleep(PAUSE)
        await asyncio.sleep(PAUSE)


@contextlib.asynccontextmanager
async def connected(host: str, port: int) -> AsyncIterator[asyncio.StreamWriter]:
    """A connection of which nothing is read beyond the stream's own buffer."""
    _, writer = await asyncio.open_connection(host, port, limit=1024)
    try:
        yield writer
    finally:
        writer.transport.abort()


async def main(address: str, count: int, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    counts: Counter[str] = Counter()
    tasks = []
    until = time.monotonic() + seconds
    for number in range(count):
        tasks.append(asyncio.ensure_future(harm(host, int(port), number, counts)))
        if number % 50 == 0:
            await asyncio.sleep(0.02)
    await asyncio.sleep(max(0, until - time.monotonic()))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    os.nice(15)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
