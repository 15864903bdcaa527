"""Messages that no other broker accepts, and those that wait after them."""

import asyncio
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.failover.acting import duties
from tests.daemons.broker.failover.acting.sets import (
    acts,
    bodies,
    cluster,
    have,
    is_copied,
    sees,
    send,
)
from tests.daemons.broker.transactions.producers import HALF, TOPIC, TransactionPeer

NEVER = {"transactionCheckInterval": "600000"}
AT_ONCE = 4
COUNT = 12


def test_after_an_undeliverable_half_only_a_few_are_sent_and_stay_open_at_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "_AT_ONCE", AT_ONCE)

    async def script() -> None:
        async with (
            cluster(tmp_path) as brokers,
            brokers.other(**NEVER) as other,
            Session("127.0.0.1:1") as session,
        ):
            await send(other, b"topic", TOPIC)
            async with brokers.slave(1, **NEVER) as slave:
                async with brokers.master(**NEVER) as master:
                    await send(master, b"stuck", "Nowhere", TRAN_MSG="true", UNIQ_KEY="A" * 32)
                    producer = TransactionPeer(session, master.address)
                    await producer.beat()
                    for number in range(COUNT):
                        await producer.prepare(b"%d" % number)
                    await is_copied(slave, master)
                await acts(slave)
                await have(other, AT_ONCE - 1, HALF)
                await asyncio.sleep(1)  # more would be sent meanwhile
                await asyncio.sleep(2)
                async with brokers.master(**NEVER) as master:
                    await sees(slave, master)
                    left = len(master.delivery.transactions.open_halves())
                    assert left + len(bodies(other, HALF)) < 1 + COUNT + AT_ONCE

    asyncio.run(script())
