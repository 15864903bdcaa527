"""An unreadable half does not prevent a start, and is open again once it can be read."""

import asyncio
from pathlib import Path

from mq.client.transport.session import Session
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.transactions.producers import COMMIT, HALF, TransactionPeer
from tests.daemons.broker.unreadable import unreadable


def test_a_start_skips_an_unreadable_half(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            peer = TransactionPeer(session, broker.address)
            await peer.beat()
            await peer.prepare(b"-" * 12288)
            half = await peer.prepare(b"good")
            entry = broker.stores.messages.queue(HALF, 0).entry(0)
            assert entry is not None
        with unreadable((entry[0] // 4096 + 1) * 4096):
            async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
                peer = TransactionPeer(session, broker.address)
                await peer.beat()
                await peer.end(half, COMMIT)
                assert await peer.consumed() == [b"good"]

        async with broker_on(tmp_path) as broker:
            assert broker.delivery.transactions.open_halves() == [0]

    asyncio.run(main())
