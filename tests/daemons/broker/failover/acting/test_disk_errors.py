"""An acting slave whose disk fails."""

import asyncio
import errno
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.protocol import names
from mq.protocol.message import StoredMessage
from tests.daemons.broker.failover.acting.sets import (
    LONG,
    acts,
    bodies,
    cluster,
    have,
    is_copied,
    send,
)
from tests.daemons.broker.transactions.producers import HALF, TOPIC, TransactionPeer

SHORT = {"messageDelayLevel": "1s 2s 3s", "transactionCheckInterval": "600000"}


@pytest.mark.parametrize("errors", [1, 1_000_000])
def test_a_temporarily_unreadable_half_is_not_skipped_and_blocks_no_other(
    errors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 0
    read_entry = MessageWriter.read_entry

    def read(
        writer: MessageWriter, topic: str, queue_id: int, index: int, physical: int = -1
    ) -> StoredMessage | None:
        nonlocal left
        if topic == names.TRANSACTION_HALF_TOPIC and left > 0:
            left -= 1
            raise OSError(errno.EIO, "Input/output error")
        at = () if physical < 0 else (physical,)
        return read_entry(writer, topic, queue_id, index, *at)

    monkeypatch.setattr(MessageWriter, "read_entry", read)

    async def script() -> None:
        nonlocal left
        async with (
            cluster(tmp_path) as brokers,
            brokers.other(**SHORT) as other,
            Session("127.0.0.1:1") as session,
        ):
            await send(other, b"topic", TOPIC)
            async with brokers.slave(1, **SHORT) as slave:
                async with brokers.master(**{**SHORT, **LONG}) as master:
                    producer = TransactionPeer(session, master.address)
                    await producer.beat()
                    await producer.prepare(b"one")
                    await producer.prepare(b"two")
                    await send(master, b"delayed", TOPIC, DELAY="1")
                    await is_copied(slave, master)
                left = errors
                await acts(slave)
                assert await have(other, 2, TOPIC) == [b"delayed", b"topic"]
                if errors == 1:
                    assert await have(other, 2, HALF) == [b"one", b"two"]
                left = 0
                async with brokers.master(**SHORT) as master:
                    open_there = len(master.delivery.transactions.open_halves())
                    assert open_there + len(bodies(other, HALF)) == 2
                    assert master.delivery.delayed.offsets == {1: 1}

    asyncio.run(script())
