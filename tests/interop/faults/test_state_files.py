"""A Java broker loads the topics, groups and offsets that we saved, and the reverse."""

import asyncio
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.topics.topic_table import Topics, new_topic
from mq.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.daemons.broker.settings import broker_settings
from tests.interop import peers
from tests.interop.jvm import require_java

pytestmark = pytest.mark.java


SETTINGS = broker_settings(broker_name="java-broker")


@pytest.mark.parametrize("release", peers.SERVER_RELEASES)
def test_state_goes_from_our_broker_to_javas_and_back(release: str, tmp_path: Path) -> None:
    require_java()
    store = tmp_path / "store"
    paths = [
        store / "config" / name
        for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
    ]
    asyncio.run(Topics(paths[0], SETTINGS).update(new_topic("ours", 3)))
    group = SubscriptionGroupConfig(group_name="our-group", retry_max_times=5)
    asyncio.run(Groups(paths[1], SETTINGS).update(group))
    offsets = ConsumerOffsets(paths[2])
    offsets.commit("our-group", "ours", 0, 7)
    offsets.commit("our-group", "ours", 2, 9)
    asyncio.run(offsets.save())

    async def ask(address: str) -> None:
        async with Session(address) as session:
            reply = await session.invoke(address, Command(RequestCode.GET_ALL_TOPIC_CONFIG))
            topics = TopicConfigSerializeWrapper.decode(reply.body).topic_config_table
            assert topics["ours"].write_queue_nums == 3
            reply = await session.invoke(
                address, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            )
            groups = SubscriptionGroupWrapper.decode(reply.body).subscription_group_table
            assert groups["our-group"].retry_max_times == 5
            where = {"consumerGroup": "our-group", "topic": "ours", "queueId": "2"}
            reply = await session.invoke(address, Command(RequestCode.QUERY_CONSUMER_OFFSET, where))
            assert reply.fields == {"offset": "9"}
            moved = Command(RequestCode.UPDATE_CONSUMER_OFFSET, where | {"commitOffset": "11"})
            assert (await session.invoke(address, moved)).code == 0

    with peers.JavaBroker(release, tmp_path, "", store=store) as broker:
        asyncio.run(ask(broker.address))
        broker.stop()
    assert Topics(paths[0], SETTINGS).table["ours"].write_queue_nums == 3
    assert Groups(paths[1], SETTINGS).table["our-group"].retry_max_times == 5
    assert ConsumerOffsets(paths[2]).queues("our-group", "ours") == {0: 7, 2: 11}
