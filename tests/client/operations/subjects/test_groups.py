"""Groups of a real broker and of one that lacks what came with RocketMQ 5."""

import asyncio

import pytest

from mq.client.admin import Admin
from mq.client.errors import SystemBusy
from mq.client.operations.subjects import groups
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    MessageQueue,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicList,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.client.clusters import TOPIC, cluster, numbers
from tests.client.scripted import scripted
from tests.interop.ports import free_port


def test_progress_is_told_by_queue_with_its_holder_and_a_dead_broker_beside_it() -> None:
    async def scenario() -> None:
        async with cluster() as c:
            broker = c.pair.broker.address
            await c.send(*numbers(8))
            for queue_id in range(4):
                await c.admin.update_consumer_offset(broker, "g", TOPIC, queue_id, 1)
            holders = {MessageQueue(TOPIC, c.pair.broker.settings.broker.broker_name, 2): "me@1"}
            dead = f"127.0.0.1:{free_port()}"
            progress, failed = await groups.progress(c.admin, [broker, dead], "g", 10)
            progress = groups.held_by(progress, holders)
        assert progress.lag == 4
        assert [(row.consumer_offset, row.client) for row in progress.queues] == [
            *((1, None), (1, None), (1, "me@1"), (1, None))
        ]
        assert list(failed) == [dead]

    asyncio.run(scenario())


def test_settings_are_told_of_one_group() -> None:
    async def scenario() -> None:
        async with cluster() as c:
            broker = c.pair.broker.address
            config = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
            await c.admin.update_subscription_group(broker, config)
            found = await groups.settings(c.admin, broker, "g")
            assert found is not None
            assert found.retry_max_times == 3
            assert await groups.settings(c.admin, broker, "none") is None

    asyncio.run(scenario())


def test_a_broker_of_4_9_is_asked_for_all_groups_when_it_cannot_tell_of_one() -> None:
    async def scenario() -> None:
        def every(request: Command, channel: Channel) -> Command:
            table = {"g": SubscriptionGroupConfig(group_name="g", retry_max_times=3)}
            return request.reply(
                0, None, SubscriptionGroupWrapper(subscription_group_table=table).encode()
            )

        answers = {int(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG): every}
        async with scripted(answers) as old, Session(old) as session:
            found = await groups.settings(Admin(session), old, "g")
            assert found is not None
            assert found.retry_max_times == 3
            assert await groups.settings(Admin(session), old, "h") is None

    asyncio.run(scenario())


def test_whether_there_is_a_group_is_not_known_while_a_broker_does_not_say() -> None:
    def busy(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]system busy")

    async def scenario() -> None:
        async with scripted({RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: busy}) as broker:
            info = ClusterInfo(
                broker_addr_table={
                    "b": BrokerData(cluster="c", broker_name="b", broker_addrs={0: broker})
                },
                cluster_addr_table={"c": {"b"}},
            )
            answers: dict[int, Handler] = {
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda request, _: request.reply(
                    body=TopicList().encode()
                ),
                RequestCode.GET_BROKER_CLUSTER_INFO: lambda request, _: request.reply(
                    body=info.encode()
                ),
            }
            async with scripted(answers) as server, Session(server) as session:
                with pytest.raises(SystemBusy):
                    await groups.exists(Admin(session), "g")

    asyncio.run(scenario())
