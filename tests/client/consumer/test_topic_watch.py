"""Listeners to the queues of a topic."""

import asyncio

import pytest

from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.protocol.bodies import MessageQueue
from tests.client.clusters import GROUP, TOPIC, cluster
from tests.waiting import until


def test_a_topic_listener_that_raises_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.consumer.topic_watch.TOPIC_CHECK_SECONDS", 0.05)
    heard: list[int] = []

    def broken(topic: str, queues: list[MessageQueue]) -> None:
        raise KeyError("a bug of the user's")

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            async with LitePullConsumer(there.address, GROUP) as lite:
                await lite.on_queues_changed(TOPIC, broken)
                await lite.on_queues_changed(TOPIC, lambda topic, queues: heard.append(len(queues)))
                for count in (2, 3):
                    config = there.pair.broker.stores.topics.get(TOPIC)
                    assert config is not None
                    config.read_queue_nums = config.write_queue_nums = count
                    await there.admin.create_topic(there.pair.broker.address, config)
                    lite.session.outdate_route(TOPIC)
                    await until(lambda: heard[-1:] == [count])  # noqa: B023

    asyncio.run(scenario())
