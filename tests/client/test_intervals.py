"""The intervals of a client's route queries and heartbeats."""

import asyncio
from collections import Counter

import pytest

from mq.client.errors import ClientError
from mq.client.intervals import Intervals
from mq.client.producer.producer import Producer
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.client.clusters import TOPIC
from tests.client.scripted import accept_heartbeats, routes, scripted, stores
from tests.waiting import until


def test_route_queries_and_heartbeats_follow_their_intervals() -> None:
    asked: Counter[int] = Counter()

    def counted(handler: Handler) -> Handler:
        def count(request: Command, channel: Channel) -> object:
            asked[request.code] += 1
            return handler(request, channel)

        return count  # type: ignore[return-value]

    async def scenario() -> None:
        beat = RequestCode.HEART_BEAT
        broker_handlers: dict[int, Handler] = {
            **stores("a", Counter()),
            beat: counted(accept_heartbeats()[beat]),
        }
        async with scripted(broker_handlers) as broker:
            names: dict[int, Handler] = {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: counted(routes({"a": broker}))
            }
            async with scripted(names) as namesrv:
                intervals = Intervals(routes=0.05, heartbeats=0.05)
                async with Producer(namesrv, intervals=intervals) as producer:
                    await producer.send(Message(TOPIC, b"1"))
                    await until(lambda: min(asked.values()) >= 5 and len(asked) == 2)

    asyncio.run(scenario())
    with pytest.raises(ClientError, match="the interval of routes must be above 0 s, not 0"):
        Intervals(routes=0)
