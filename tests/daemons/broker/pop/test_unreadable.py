"""An unreadable record of a revive queue holds back no other, and does not prevent a start."""

import asyncio
from pathlib import Path

import pytest

from mq.protocol.names import REVIVE_TOPIC_PREFIX
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.pop.consumers import PopConsumer, bodies, fill
from tests.daemons.broker.running import broker_on, now
from tests.daemons.broker.unreadable import unreadable
from tests.daemons.peer import Peer

ONE = {"maxMsgNums": "1", "invisibleTime": "3000"}


def test_a_start_skips_an_unreadable_check_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.pop.check_points.MOST_ATTEMPTS", 2)
    settings = {"reviveQueueNum": "1"}

    async def main() -> None:
        async with broker_on(tmp_path, **settings) as broker, Peer(broker.port) as peer:
            await fill(peer, 3)
            await create_topic(peer, "Between", 1)
            await send(peer, "Between", b"-" * 8192)
            consumer = PopConsumer(peer, broker)
            assert bodies(await consumer.pop(**ONE)) == [b"0"]
            await send(peer, "Between", b"-" * 8192)
            assert bodies(await consumer.pop(**ONE)) == [b"1"]
            store = broker.stores.messages
            queue = next(q for q in store.queues if q.topic.startswith(REVIVE_TOPIC_PREFIX))
            entry = queue.entry(0)
            assert entry is not None
        with unreadable(entry[0] // 4096 * 4096):
            async with broker_on(tmp_path, **settings) as broker, Peer(broker.port) as peer:
                consumer = PopConsumer(peer, broker)
                assert bodies(await consumer.pop(**ONE)) == [b"2"]
                again = await consumer.pop(bornTime=str(now()), pollTime="20000")
                assert bodies(again) == [b"1"]

    asyncio.run(main())
