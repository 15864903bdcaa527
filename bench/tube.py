"""The rates at which a TubeMQ broker receives and delivers messages: `python -m bench.tube [--size
1024]`.

The broker, the senders and the readers run in processes of their own. Senders and readers use raw
RPC, so the cost of a client is not included. CPU is that of each process, from the kernel.
"""

import argparse
import asyncio
import gc
import multiprocessing as mp
import os
import shutil
import sys
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

import uvloop

from mq.client.tube.connection import TubeConnection
from mq.daemons.service import GC_THRESHOLDS
from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.config import BrokerSettings
from mq.protocol.tube.codes import Method
from mq.protocol.tube.frame import FrameDecoder
from mq.protocol.tube.messages import (
    GetMessageRequestC2B,
    RegisterRequestC2B,
    RegisterResponseB2C,
    SendMessageRequestP2B,
)
from mq.protocol.tube.payload import checksum
from mq.protocol.tube.rpc import decode_response, encode_request

PARTITIONS = 8
IN_FLIGHT = 64  # sends per connection


def broker(pipe: Pipe, folder: str, mode: str) -> None:
    """Run a broker until "end" is received; sends its port, then its CPU seconds on request."""

    async def main() -> None:
        overrides = {
            "port": "0", "webPort": "-1", "primaryPath": folder, "brokerId": "1",
            "topicList": f"bench:{PARTITIONS}:1", "flushMode": mode, "transferSize": "1048576",
        }  # fmt: skip
        loop = asyncio.get_running_loop()
        async with Broker(BrokerSettings.load(None, overrides)) as running:
            pipe.send(running.port)
            while True:
                asked = loop.create_future()
                loop.add_reader(pipe.fileno(), asked.set_result, None)
                await asked
                loop.remove_reader(pipe.fileno())
                if pipe.recv() == "end":
                    return
                pipe.send(sum(os.times()[:2]))

    gc.set_threshold(*GC_THRESHOLDS)  # as in a daemon
    uvloop.run(main())


class Sender(asyncio.Protocol):
    """A connection that always has a constant number of sends in flight."""

    def __init__(self, frames: list[bytes], end: float) -> None:
        self._frames = frames
        self._end = end
        self._decoder = FrameDecoder()
        self._next = 0
        self.answered = 0
        self.failed = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send(IN_FLIGHT)

    def _send(self, count: int) -> None:
        frames = self._frames
        self._next += count
        size = len(frames)
        self._transport.write(
            b"".join([frames[(self._next + number) % size] for number in range(count)])
        )

    def data_received(self, data: bytes) -> None:
        found = self._decoder.feed(data)
        for _, payload in found:
            if decode_response(payload)[:2] != b"\x08\x01":
                self.failed += 1
        self.answered += len(found)
        if time.monotonic() < self._end:
            self._send(len(found))
        elif not self.done.done():
            self.done.set_result(None)


def senders(pipe: Pipe, port: int, connections: int, size: int, seconds: float) -> None:
    async def main() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        payload = bytes(range(256)) * (size // 256 + 1)
        frames = []
        for number in range(PARTITIONS):
            data = payload[number : number + size]
            message = SendMessageRequestP2B(
                clientId="127.0.0.1-1-1-1-bench", topicName="bench", partitionId=number,
                data=data, flag=0, checkSum=checksum(data), sentAddr=0x7F000001,
            )  # fmt: skip
            message.authInfo.visitAuthorizedToken = -2
            body = message.SerializeToString()
            frames.append(encode_request(number, Method.SEND_MESSAGE_P2B, body, 9500))
        end = time.monotonic() + seconds
        made = [
            (await loop.create_connection(lambda: Sender(frames, end), "127.0.0.1", port))[1]
            for _ in range(connections)
        ]
        await asyncio.gather(*(one.done for one in made))
        return sum(one.answered for one in made), sum(one.failed for one in made)

    pipe.send(uvloop.run(main()))


class Reader(asyncio.Protocol):
    """A connection that reads a partition to its end, one get at a time."""

    def __init__(self, partition: int) -> None:
        body = GetMessageRequestC2B(
            clientId=f"bench_{partition}", groupName="bench", topicName="bench",
            partitionId=partition, lastPackConsumed=True,
        ).SerializeToString()  # fmt: skip
        self._request = encode_request(1, Method.GET_MESSAGES_C2B, body, 9500)
        self._decoder = FrameDecoder()
        self.bytes = 0
        self.gets = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        for _, payload in self._decoder.feed(data):
            if b"\x08\x01\x10\xc8\x01" not in payload[:40]:
                self.done.set_result(None)
                return
            self.bytes += len(payload)
            self.gets += 1
            self._transport.write(self._request)


def readers(pipe: Pipe, port: int, partitions: int) -> None:
    async def main() -> tuple[int, int, float]:
        control = TubeConnection(f"127.0.0.1:{port}")
        for number in range(partitions):
            request = RegisterRequestC2B(
                opType=31, clientId=f"bench_{number}", groupName="bench", topicName="bench",
                partitionId=number, readStatus=0,
            )  # fmt: skip
            answer = RegisterResponseB2C.FromString(
                await control.call(Method.CONSUMER_REGISTER_C2B, request.SerializeToString(), 10)
            )
            assert answer.success, answer
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        made = [
            (await loop.create_connection(lambda n=n: Reader(n), "127.0.0.1", port))[1]  # type: ignore[misc]
            for n in range(partitions)
        ]
        await asyncio.gather(*(one.done for one in made))
        seconds = time.monotonic() - began
        control.close()
        return sum(one.bytes for one in made), sum(one.gets for one in made), seconds

    pipe.send(uvloop.run(main()))


def timed(pipe: Pipe, work: Any, *arguments: Any) -> tuple[Any, float]:
    """Return the result of a process, and the CPU of the broker meanwhile."""
    here, there = mp.Pipe()
    pipe.send("cpu")
    before = pipe.recv()
    process = mp.Process(target=work, args=(there, *arguments))
    process.start()
    found = here.recv()
    process.join()
    pipe.send("cpu")
    return found, pipe.recv() - before


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--mode", default="os", choices=["sync", "os", "memory"])
    parser.add_argument("--folder", default=None)
    asked = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="mq-tube-", dir=asked.folder)
    here, there = mp.Pipe()
    process = mp.Process(target=broker, args=(there, folder, asked.mode))
    process.start()
    try:
        port = here.recv()
        (count, failed), cpu = timed(
            here, senders, port, asked.connections, asked.size, asked.seconds
        )
        print(
            f"send: {count / asked.seconds:,.0f} messages/s of {asked.size} B, {failed} refused "
            f"- broker {cpu / count * 1e6:.1f} us of CPU a message"
        )
        (size, gets, seconds), cpu = timed(here, readers, port, PARTITIONS)
        print(
            f"get: {count / seconds:,.0f} messages/s, {size / seconds / 1e6:,.0f} MB/s, {gets} gets"
            f" - broker {cpu / count * 1e6:.2f} us of CPU a message"
        )
    finally:
        here.send("end")
        process.join(30)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    main()
