"""Cleaning at request: what is not needed goes, what is needed stays."""

import asyncio
import os
from pathlib import Path

from mq.client.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command

FILE_SIZE = 64 * 1024
LONG_AGO = 1_000_000_000


def broker_on(root: Path) -> Broker:
    settings = {
        "listenPort": "0",
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": str(root),
        "mappedFileSizeCommitLog": str(FILE_SIZE),
    }
    return Broker(BrokerSettings.load(None, settings))


async def send(session: Session, address: str, topic: str, body: bytes) -> None:
    fields = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0"}
    fields |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
    reply = await session.invoke(address, Command(RequestCode.SEND_MESSAGE_V2, fields, body))
    assert reply.code == ResponseCode.SUCCESS, reply


async def ask(session: Session, address: str, code: RequestCode) -> None:
    assert (await session.invoke(address, Command(code))).code == ResponseCode.SUCCESS


def test_expired_log_files_and_then_queues_without_messages_are_deleted(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, "Old", b"x" * 1000)
            for _ in range(10):  # three to a file
                await send(session, broker.address, "New", b"x" * 20_000)
            store = broker.store
            files = [file.path for file in store.log.files]
            assert len(files) == 4
            await store.flusher.drain()
            await store.checkpointer.checkpoint()
            for path in files[:2]:
                os.utime(path, (LONG_AGO, LONG_AGO))
            await ask(session, broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG)
            assert [path.exists() for path in files] == [False, False, True, True]
            assert store.max_offset("Old", 0) == 1

            await ask(session, broker.address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
            assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (0, 0)
            assert not (tmp_path / "consumequeue" / "Old" / "0").exists()
            assert store.max_offset("New", 0) == 10
            await send(session, broker.address, "Old", b"again")
            assert store.max_offset("Old", 0) == 1
            assert store.consume_queue_entry("Old", 0, 0) is not None

    asyncio.run(script())


def test_queues_of_topics_that_are_not_there_are_deleted(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            await send(session, broker.address, "Kept", b"x")
            await send(session, broker.address, "Dropped", b"x")
            await broker.store.checkpointer.checkpoint()
            broker.topics.delete("Dropped")
            await ask(session, broker.address, RequestCode.CLEAN_UNUSED_TOPIC)
            queues = tmp_path / "consumequeue"
            assert ((queues / "Kept").exists(), (queues / "Dropped").exists()) == (True, False)

    asyncio.run(script())
