"""Pops of messages that are not in memory: read in a thread, then answered."""

import asyncio
from pathlib import Path

import pytest

from mq.client.machine.clock import milliseconds
from mq.protocol.codes import RequestCode
from mq.protocol.message import decode_records
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.pop.consumers import TOPIC, PopConsumer, fill
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.store.stores import forget_pages
from tests.daemons.peer import Peer


@pytest.mark.parametrize("poll", ["0", "60000"])
def test_a_pop_of_messages_not_in_memory_is_answered_once_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, poll: str
) -> None:
    async def main() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            await fill(peer, 5)
            await broker.stores.messages.flusher.drain()
            reads = forget_pages(monkeypatch)
            consumer = PopConsumer(peer, broker)
            fields = consumer.header()
            peeked = await peer.ask(RequestCode.PEEK_MESSAGE, fields)
            assert len(decode_records(peeked.body)) == 5
            reads.done.clear()
            broker.services.pulls._residency._until = 0.0
            popped = await consumer.pop(pollTime=poll, bornTime=str(milliseconds()))
            assert sorted(one.body for one in popped) == [b"%d" % n for n in range(5)]
            assert reads.done and all(is_thread for _, _, is_thread in reads.done)

    asyncio.run(main())


def test_a_suspended_pop_gets_messages_that_must_be_read_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is flushed, and released from memory, before the pop is executed again."""

    async def main() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            await create_topic(peer, TOPIC, 1)
            consumer = PopConsumer(peer, broker)
            held = asyncio.ensure_future(
                consumer.pop(pollTime="60000", bornTime=str(milliseconds()))
            )
            queue = broker.stores.messages.queue(TOPIC, 0)
            async with asyncio.timeout(30):
                while not queue.waiting:  # noqa: ASYNC110  (it has no event)
                    await asyncio.sleep(0)
            waiting = dict(queue.waiting)
            queue.waiting.clear()  # nothing is woken by it
            async with Peer(broker.port) as other:
                await send(other, TOPIC, b"it")
            await broker.stores.messages.flusher.drain()
            reads = forget_pages(monkeypatch)
            queue.waiting.update(waiting)
            for line in waiting:
                line.wake()
            assert [one.body for one in await held] == [b"it"]
            assert reads.done and all(is_thread for _, _, is_thread in reads.done)

    asyncio.run(main())
