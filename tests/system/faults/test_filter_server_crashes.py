"""Filter servers and sandboxes that are killed repeatedly while a group consumes."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.client import ClassFilter, Consumer
from mq.client.machine import clock
from mq.client.options import Intervals
from mq.client.producer.producer import Producer
from mq.daemons.broker.components import filters
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message, StoredMessage
from tests.daemons.filtersrv.servers import EVEN

pytestmark = pytest.mark.longer

ROUNDS = 100 if os.environ.get("MQ_TEST_LONG") else 4
TOPIC = "Orders"
PATIENCE = 120.0


def children(process: int) -> list[int]:
    """The processes started by another one."""
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(word) for word in text.split()]


@pytest.mark.timeout(1800 if os.environ.get("MQ_TEST_LONG") else 300)
def test_no_acknowledged_message_is_lost_and_the_group_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filters, "FIRST_START_SECONDS", 0.0)
    # The pause of a consumer after a failed pull: many fail here.
    monkeypatch.setattr("mq.client.pull.pulling.PULL_RETRY_SECONDS", 0.2)
    chance = random.Random(1)
    settings = {"filterServerNums": "2", "clientUploadFilterClassEnable": "true"}
    sent: set[bytes] = set()
    got: set[bytes] = set()
    news, more = asyncio.Event(), asyncio.Event()

    async def listen(message: StoredMessage) -> None:
        got.add(message.body)
        news.set()

    async def send(producer: Producer, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            body = b"%d" % number
            await producer.send(Message(TOPIC, body))
            if number % 2 == 0:
                sent.add(body)
                more.set()
            number += 1
            await asyncio.sleep(0.005)

    async def come() -> None:
        """Wait until the group has received everything acknowledged now and in the next moment."""
        count = len(sent) + 50
        while len(sent) < count:
            await more.wait()
            more.clear()
        target = set(sent)
        async with asyncio.timeout(PATIENCE):
            while not target <= got:
                await news.wait()
                news.clear()

    async def kill_one(pair: Standalone) -> str:
        """Kill a filter server, one of its sandboxes, or all."""
        processes = [helper.process.pid for helper in pair.broker.filters.helpers.running]
        server = chance.choice(processes)
        below = children(server)
        if below and chance.random() < 0.5:
            os.kill(chance.choice(below), signal.SIGKILL)
            return "sandbox"
        every = chance.random() < 0.3
        for process in processes if every else [server]:
            os.kill(process, signal.SIGKILL)
        return "filter servers" if every else "filter server"

    async def main() -> None:
        async with Standalone(name_server_port=0, broker_port=0, properties=settings) as pair:
            address = pair.name_server_address
            stop = asyncio.Event()
            async with Producer(address) as producer:
                await producer.send(Message(TOPIC, b"1"))
                sending = asyncio.ensure_future(send(producer, stop))
                killed = []
                async with Consumer(
                    address,
                    "billing",
                    {TOPIC: ClassFilter("Even", EVEN.decode())},
                    listener=listen,
                    consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                    intervals=Intervals(heartbeats=1.0, routes=1.0),
                ):
                    await come()
                    for _ in range(ROUNDS):
                        began = clock.monotonic()
                        killed.append(await kill_one(pair))
                        await come()
                        print(f"{killed[-1]}: goes on after {clock.monotonic() - began:.2f} s")
                    await come()
                    stop.set()
                    await sending
                assert set(killed) >= {"sandbox", "filter server"}
                assert {int(body) % 2 for body in got} == {0}

    asyncio.run(main())


def test_filter_servers_end_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        command = [sys.executable, "-m", "mq", "standalone", "--namesrv-port", "0"]
        command += ["--broker-port", "0", "--set", "filterServerNums=1"]
        command += ["--store", str(tmp_path / "store")]
        pair = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait(lambda: len(children(pair.pid)) == 1)
        (filter_server,) = children(pair.pid)
        wait(lambda: "registered with broker" in (tmp_path / "log").read_text())
    finally:
        pair.kill()
        pair.wait()
    wait(lambda: not Path(f"/proc/{filter_server}").exists())


def wait(holds: Callable[[], bool]) -> None:
    """Wait until a condition on other processes holds, for which there are no events here."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
