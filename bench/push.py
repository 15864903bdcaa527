"""The latency of a snode's pushes: `python -m bench.push --rate 10000 --seconds 10`.

Starts `mq namesrv`, `mq broker` and `mq snode`, a producer and a consumer in processes of their
own, sends at a constant rate through the snode, and prints the time until the listener had the
message: since the start of the send, and since the producer had its response. The broker's
acknowledgement is between these two.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

TOPIC = "Pushed"
_STAMP = struct.Struct(">qq")  # number, start of the send (monotonic, ns)


def percentiles(values: list[int]) -> dict[str, float]:
    """Return percentiles in ms, of values in ns."""
    values.sort()
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    return {name: values[int(part * (len(values) - 1))] / 1e6 for name, part in at.items()}


async def produce(namesrv: str, rate: int, seconds: float, size: int) -> dict[int, tuple[int, int]]:
    """Send messages; returns the time of each send and its response, by number."""
    from mq.client import Producer
    from mq.protocol.message import Message

    times: dict[int, tuple[int, int]] = {}
    failed = 0
    filling = bytes(size - _STAMP.size)
    async with Producer(namesrv, snode=True, timeout=10.0) as producer:
        await producer.prepare(TOPIC)
        loop = asyncio.get_running_loop()
        start = loop.time()
        number = 0
        while (now := loop.time()) < start + seconds:
            while number < (now - start) * rate:
                began = time.monotonic_ns()

                def answered(future, number=number, began=began) -> None:  # type: ignore[no-untyped-def]
                    nonlocal failed
                    if future.exception() is None:
                        times[number] = began, time.monotonic_ns()
                    else:
                        failed += 1

                body = _STAMP.pack(number, began) + filling
                producer.submit(Message(TOPIC, body)).add_done_callback(answered)
                number += 1
            await asyncio.sleep(0.001)
        while len(times) + failed < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return times


async def consume(namesrv: str, pipe: Connection, pushed: bool) -> None:
    """Consume until the pipe gives the total; sends back the arrival times, by number."""
    from mq.client import Consumer, PushConsumer

    came: dict[int, tuple[int, int]] = {}
    again = 0

    async def listen(message) -> None:  # type: ignore[no-untyped-def]
        nonlocal again
        number, _ = _STAMP.unpack_from(message.body)
        again += number in came
        age = time.time_ns() - message.store_timestamp * 1_000_000
        came.setdefault(number, (time.monotonic_ns(), age))

    kind = PushConsumer if pushed else Consumer
    async with kind(namesrv, "bench", {TOPIC: "*"}, listener=listen, snode=True) as consumer:
        while not any(queue.topic == TOPIC for queue in consumer.assigned):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        pipe.send("ready")
        total = await asyncio.to_thread(pipe.recv)
        until = time.monotonic() + 30
        while len(came) < total and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    pipe.send((came, again))


def run_consumer(namesrv: str, pipe: Connection, pushed: bool) -> None:
    asyncio.run(consume(namesrv, pipe, pushed))


def run_producer(namesrv: str, pipe: Connection, rate: int, seconds: float, size: int) -> None:
    pipe.send(asyncio.run(produce(namesrv, rate, seconds, size)))


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(
    stack: ExitStack, folder: Path, pids: dict[str, int], word: str, ready: str, **settings: str
) -> str:
    """Start a daemon; returns its address."""
    command = [sys.executable, "-m", "mq", word]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    log = folder / f"{word}.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    pids[word] = process.pid
    stack.callback(process.wait)
    stack.callback(process.terminate)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(ready, log.read_text())
        if found is not None:
            return found[1]
        time.sleep(0.02)
    raise SystemExit(f"{word} did not start:\n{log.read_text()}")


def daemons(stack: ExitStack, folder: Path, pids: dict[str, int], queues: int) -> str:
    """Start a name server, a broker with the topic, and a snode; returns the name server's
    address.
    """
    namesrv = start(
        *(stack, folder, pids, "namesrv", r"(127\.0\.0\.1:\d+)"),
        listenPort="0",
        kvConfigPath=str(folder / "kv.json"),
    )
    common = {"listenPort": "0", "namesrvAddr": namesrv}
    ready = r"The %s\[[^,]+, ([0-9.:]+)\] boot success"
    broker = {"brokerIP1": "127.0.0.1", "storePathRootDir": str(folder / "store")}
    start(stack, folder, pids, "broker", ready % "broker", **common, **broker)
    snode = {"snodeIP1": "127.0.0.1", "metricsEnable": "false"}
    start(stack, folder, pids, "snode", ready % "snode", **common, **snode)
    count = str(queues)
    where = ("-n", namesrv, "-c", "DefaultCluster", "-t", TOPIC, "-r", count, "-w", count)
    command = (sys.executable, "-m", "mq", "updateTopic", *where)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return namesrv


class Round(NamedTuple):
    """The measurements of each message, by number: times of this machine in ns."""

    times: dict[int, tuple[int, int]]  # the start of its send and its response
    came: dict[int, tuple[int, int]]  # its arrival at the listener, and its age then
    again: int
    used: dict[str, float]  # processor seconds by process


def measure(namesrv: str, pids: dict[str, int], options: argparse.Namespace) -> Round:
    """Send from one process, consume in another one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    consumer = context.Process(
        target=run_consumer, args=(namesrv, theirs, not options.pull), daemon=True
    )
    consumer.start()
    ours.recv()
    assert consumer.pid is not None
    pids["consumer"] = consumer.pid
    before = {word: cpu_seconds(pid) for word, pid in pids.items()}
    reading, writing = context.Pipe(duplex=False)
    producer = context.Process(
        target=run_producer,
        args=(namesrv, writing, options.rate, options.seconds, options.size),
        daemon=True,
    )
    producer.start()
    times = reading.recv()
    used = {word: cpu_seconds(pid) - before[word] for word, pid in pids.items()}
    ours.send(len(times))
    came, again = ours.recv()
    return Round(times, came, again, used)


def report(seen: Round, skip: int) -> dict[str, object]:
    """Return the output; without times of the first `skip` messages, during the warm-up."""
    times, came = seen.times, seen.came
    both = [(*times[n], came[n][0]) for n in times if n in came and n >= skip]
    ages = [age for n, (_, age) in came.items() if n >= skip]
    took = max(answered for _, answered in times.values()) - min(b for b, _ in times.values())
    return {
        "sent": len(times),
        "missing": len(times.keys() - came.keys()),
        "again": seen.again,
        "rate": round(len(times) / took * 1e9),
        "since the send began, ms": percentiles([at - began for began, _, at in both]),
        "since the producer's answer, ms": percentiles([at - done for _, done, at in both]),
        "since the acknowledgement, ms": percentiles(ages),
        "the send itself, ms": percentiles([done - began for began, done, _ in both]),
        "cores": {word: round(seconds / took * 1e9, 2) for word, seconds in seen.used.items()},
        "load of the machine": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--pull", action="store_true", help="the same with a consumer that pulls")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pids: dict[str, int] = {}
        namesrv = daemons(stack, folder, pids, options.queues)
        seen = measure(namesrv, pids, options)
        result = report(seen, skip=options.rate)  # the first second
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
