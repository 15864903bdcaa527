"""Replica sets of scripted brokers, some of which lag, and a name server that knows them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from mq.protocol.record_codec import encode_record
from tests.client.clusters import TOPIC
from tests.client.scripted import accept_heartbeats, name_server, scripted

NAME = "broker-a"


def a_second_apart(offset: int) -> int:
    return 1_000 * offset


def replica(
    end: int, *, first: int = 0, time_of: Callable[[int], int] = a_second_apart
) -> dict[int, Handler]:
    """Return the handlers of a replica with messages up to offset `end`; each body is its offset.

    It suggests broker 1 for the next pull. `first` is the offset whose store time it reports as the
    earliest.
    """

    def pull(request: Command, channel: Channel) -> Command:
        offset = int(request.fields["queueOffset"])
        figures = {"minOffset": 0, "maxOffset": end, "suggestWhichBrokerId": 1}
        fields = {name: str(figure) for name, figure in figures.items()}
        if offset >= end:
            fields["nextBeginOffset"] = str(end)
            return request.reply(ResponseCode.PULL_NOT_FOUND, fields)
        fields["nextBeginOffset"] = str(offset + 1)
        message = StoredMessage(TOPIC, b"%d" % offset, queue_offset=offset)
        message.store_timestamp = time_of(offset)
        return request.reply(0, fields, encode_record(message))

    codes = RequestCode
    handlers: dict[int, Handler] = {**accept_heartbeats(), codes.PULL_MESSAGE: pull}
    handlers[codes.QUERY_CONSUMER_OFFSET] = lambda request, _: request.reply(0, {"offset": "0"})
    handlers[codes.UPDATE_CONSUMER_OFFSET] = lambda request, _: request.reply(0)
    handlers[codes.GET_EARLIEST_MSG_STORETIME] = lambda request, _: request.reply(
        0, {"timestamp": str(time_of(first))}
    )
    return handlers


@asynccontextmanager
async def named(
    addresses: dict[int, str], others: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[str]:
    """Run a name server that has the topic at one replica set and at other masters.

    `addresses` are those of the set, by broker id; `others` are masters, by broker name.
    """

    def answer(request: Command, channel: Channel) -> Command:
        sets = {NAME: dict(addresses)} | {name: {0: address} for name, address in others.items()}
        route = TopicRouteData(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=6)
                for name in sets
            ],
            broker_datas=[
                BrokerData(cluster="c", broker_name=name, broker_addrs=those)
                for name, those in sets.items()
            ],
        )
        return request.reply(0, None, route.encode())

    handlers: dict[int, Handler] = {**name_server({}), RequestCode.GET_ROUTEINFO_BY_TOPIC: answer}
    async with scripted(handlers) as address:
        yield address


async def polled(consumer: LitePullConsumer, count: int) -> list[bytes]:
    got: list[bytes] = []
    async with asyncio.timeout(20):
        while len(got) < count:
            got += [message.body for message in await consumer.poll()]
    return got
