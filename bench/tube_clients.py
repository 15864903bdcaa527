"""TubeMQ's clients with our master and broker: `python -m bench.tube_clients [--rounds 3]`.

Java's producer (1.7.0) and ours send messages of 1 KB, and our consumer reads them from the
beginning. The processor time of every process is printed next to its rate, because the processes
share two cores.
"""

import argparse
import asyncio
import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path

import uvloop

from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.options import ConsumeFrom
from mq.client.tube.producer import TubeProducer
from tests.interop.tube.peers import TubeClient
from tests.interop.tube.servers import cluster

TOPIC = "bench"
PARTITIONS = 8
SIZE = 1024
PRODUCERS = 8  # of ours, with a connection each
IN_FLIGHT = 64
_TICKS = os.sysconf("SC_CLK_TCK")


def used(pid: int) -> float:
    """Return the processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def send(master: str, count: int) -> float:
    """Return the seconds that our producers take."""
    body = bytes(SIZE)
    async with asyncio.TaskGroup() as opening:
        producers = [TubeProducer(master, TOPIC) for _ in range(PRODUCERS)]
        for producer in producers:
            opening.create_task(producer.open())
    left = count

    async def lane(producer: TubeProducer) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await producer.send(TOPIC, body)

    began = time.perf_counter()
    await asyncio.gather(*(lane(one) for one in producers for _ in range(IN_FLIGHT)))
    seconds = time.perf_counter() - began
    for producer in producers:
        await producer.close()
    return seconds


async def read(master: str, count: int) -> float:
    """Return the seconds that our consumer takes from the first message to the last."""
    options = {"consume_from": ConsumeFrom.FIRST, "heartbeat_interval": 0.5, "prefetch": 2}
    async with TubeConsumer(master, f"readers{time.time_ns()}", TOPIC, **options) as consumer:  # type: ignore[arg-type]
        got, began = 0, 0.0
        while got < count:
            batch = await consumer.get_message()
            began = began or time.perf_counter()
            got += len(batch.messages)
            await consumer.confirm(batch)
        return time.perf_counter() - began


def _client(kind: str, master: str, count: int, results: "mp.Queue[tuple[float, float]]") -> None:
    before = sum(os.times()[:2])
    seconds = uvloop.run((send if kind == "send" else read)(master, count))
    results.put((seconds, sum(os.times()[:2]) - before))


def ours(kind: str, master: str, count: int) -> tuple[float, float]:
    """Return the seconds and the processor seconds of one of our clients in a process of its
    own.
    """
    context = mp.get_context("spawn")
    results: mp.Queue[tuple[float, float]] = context.Queue()
    process = context.Process(target=_client, args=(kind, master, count, results))
    process.start()
    try:
        return results.get()
    finally:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", default="os", choices=["sync", "os", "memory"])
    given = parser.parse_args()
    count = given.messages
    with tempfile.TemporaryDirectory(prefix="mq-bench-tube-") as name:
        tmp = Path(name)
        with (
            cluster(tmp, flushMode=given.mode) as (master, broker),
            TubeClient("1.7.0", master.address, tmp) as java,
        ):
            master.create_topic(TOPIC, PARTITIONS)
            java("publish", "p", TOPIC)
            java.send(TOPIC, count // 4, size=SIZE)  # warms up Java's compilers

            def row(what: str, seconds: float, client: float, server: float) -> None:
                print(
                    f"{what:<26} {count / seconds:10,.0f}/s, of the processors a message: "
                    f"client {client / count * 1e6:5.1f} us, broker {server / count * 1e6:5.1f} us",
                    flush=True,
                )

            for _ in range(given.rounds):
                client, server, began = used(java.pid), used(broker.pid), time.perf_counter()
                java.send(TOPIC, count, size=SIZE)
                seconds = time.perf_counter() - began
                row(
                    "Java's producer sends",
                    seconds,
                    used(java.pid) - client,
                    used(broker.pid) - server,
                )
                server = used(broker.pid)
                seconds, client = ours("send", master.address, count)
                row("our producers send", seconds, client, used(broker.pid) - server)
                server = used(broker.pid)
                seconds, client = ours("read", master.address, count)
                row("our consumer reads", seconds, client, used(broker.pid) - server)


if __name__ == "__main__":
    main()
