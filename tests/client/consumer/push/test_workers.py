"""Workers that call listeners: one that ends is replaced."""

import asyncio
from collections import Counter

import pytest

from mq.client.consumer.push import concurrent as concurrent_push
from mq.protocol.message import StoredMessage
from tests.client.clusters import cluster
from tests.waiting import until


@pytest.mark.parametrize("ordered", [False, True])
def test_a_worker_that_ends_is_replaced_and_its_message_comes_again(
    ordered: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(concurrent_push, "REDELIVER_SECONDS", 0.01)
    tries: Counter[bytes] = Counter()

    async def listen(message: StoredMessage) -> None:
        tries[message.body] += 1
        if message.body == b"bad" and tries[b"bad"] == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # of the worker itself
            await asyncio.sleep(0)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"bad", b"good")
            options = {"ordered": ordered, "suspension": 0.01, "concurrency": 1}
            async with there.consumer(listener=listen, **options):
                await until(lambda: tries == {b"bad": 2, b"good": 1})
            assert await there.lag() == 0

    asyncio.run(scenario())
    assert "a worker ended" in caplog.text
