"""Scripted name servers and brokers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mq.daemons.channel import Channel
from mq.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    KVTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from mq.protocol.codes import RequestCode as C
from mq.protocol.command import Command
from tests.client.scripted import scripted


@asynccontextmanager
async def hung() -> AsyncIterator[str]:
    """A server that accepts connections and never answers."""
    release = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    release.set()
    server.close()


@asynccontextmanager
async def name_server(brokers: dict[str, dict[int, str]]) -> AsyncIterator[str]:
    """One with these brokers."""
    info = ClusterInfo(
        broker_addr_table={
            name: BrokerData(cluster="C", broker_name=name, broker_addrs=addresses)
            for name, addresses in brokers.items()
        },
        cluster_addr_table={"C": set(brokers)},
    )

    def answer(request: Command, channel: Channel) -> Command:
        return request.reply(0, None, info.encode())

    async with scripted({int(C.GET_BROKER_CLUSTER_INFO): answer}) as address:
        yield address


@asynccontextmanager
async def counting_broker(
    topics: int, groups: int
) -> AsyncIterator[tuple[str, Counter[int], list[float]]]:
    """One that counts its requests, without groups and topics."""
    asked: Counter[int] = Counter()
    times: list[float] = []
    configs = TopicConfigSerializeWrapper(
        topic_config_table={f"t{n}": TopicConfig(topic_name=f"t{n}") for n in range(topics)}
    )
    settings = SubscriptionGroupWrapper(
        subscription_group_table={
            f"g{n}": SubscriptionGroupConfig(group_name=f"g{n}") for n in range(groups)
        }
    )
    bodies = {
        C.GET_BROKER_RUNTIME_INFO: KVTable(table={"brokerVersionDesc": "V4_9_8"}).encode(),
        C.GET_ALL_TOPIC_CONFIG: configs.encode(),
        C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: settings.encode(),
        C.GET_ALL_PRODUCER_INFO: b'{"data":{}}',
        C.GET_CONSUME_STATS: b'{"consumeTps":0.0,"offsetTable":{}}',
        C.GET_TOPIC_STATS_INFO: b'{"offsetTable":{}}',
    }

    def answer(request: Command, channel: Channel) -> Command:
        asked[request.code] += 1
        times.append(asyncio.get_running_loop().time())
        body = bodies.get(C(request.code))
        if body is None:
            return request.reply(1, None, remark="nothing")
        return request.reply(0, None, body)

    async with scripted({int(code): answer for code in C}) as address:
        yield address, asked, times
