"""Timed messages are recalled by the Java client 5.5.0 at our broker, and by ours at Java's."""

import asyncio
import time
from pathlib import Path

import pytest

from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from mq.protocol.recall import RecallHandle
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.stored import read
from tests.interop.tools import our_daemons

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


def test_the_java_client_recalls_a_message_at_our_broker(tmp_path: Path) -> None:
    require_java()

    async def enable(namesrv: str, broker: str) -> None:
        async with Session(namesrv) as session:
            body = b"recallMessageEnable=true\n"
            await session.call(broker, Command(RequestCode.UPDATE_BROKER_CONFIG, None, body))

    async def scenario(namesrv: str) -> None:
        async with Session(namesrv) as session:
            (left,) = await read(session, "recalled", 1)
            assert left.body == b"left"
            await asyncio.sleep(1)  # other messages of the same time would have arrived by now
            assert len(await read(session, "recalled", 1)) == 1

    with our_daemons(tmp_path) as (namesrv, broker):
        asyncio.run(enable(namesrv, broker))
        done = peers.run_java("5.5.0", "Recall.java", namesrv, "recalled")
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        sent = [line.split()[1] for line in lines if line.startswith("SENT")]
        assert f"RECALLED {sent[0]}" in lines
        asyncio.run(scenario(namesrv))


def test_our_client_recalls_a_message_at_the_java_broker(tmp_path: Path) -> None:
    require_java()

    async def scenario(namesrv: str, broker: str) -> None:
        async with Session(namesrv) as session, Producer(session, "recallers") as producer:
            due = int(time.time() * 1000) + 8000  # time to recall it, even on a busy machine
            taken, _ = [
                await producer.send(Message("recalled", body, deliver_at=due), timeout=10)
                for body in (b"taken", b"left")
            ]
            assert taken.recall_handle is not None
            assert RecallHandle.decode(taken.recall_handle)[:2] == ("recalled", broker)
            assert await producer.recall(taken.recall_handle) == taken.message_id
            (left,) = await read(session, "recalled", 1)
            assert left.body == b"left"
            await asyncio.sleep(2)  # Java's timer slots are one second long
            assert len(await read(session, "recalled", 1)) == 1

    config = {"recallMessageEnable": "true"}
    with (
        peers.JavaNameServer("5.5.0", tmp_path) as server,
        peers.JavaBroker("5.5.0", tmp_path, server.address, config) as broker,
    ):
        asyncio.run(scenario(server.address, broker.name))
