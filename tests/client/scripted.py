"""A scripted daemon: answers each request code with a function, on a real port."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher, Handler
from mq.daemons.listener import Listener
from mq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command


@asynccontextmanager
async def scripted(handlers: Mapping[int, Handler]) -> AsyncIterator[str]:
    """Serve `handlers` until the block ends; gives the address, "host:port"."""
    listener = Listener(Dispatcher(handlers), "127.0.0.1", 0)
    await listener.start()
    try:
        yield f"127.0.0.1:{listener.port}"
    finally:
        await listener.close()


def routes(brokers: Mapping[str, str], queues: int = 2) -> Handler:
    """A name server's answer: every topic is on these brokers, by name."""

    def answer(request: Command, channel: Channel) -> Command:
        route = TopicRouteData(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
                for name in brokers
            ],
            broker_datas=[
                BrokerData(cluster="c", broker_name=name, broker_addrs={0: address})
                for name, address in brokers.items()
            ],
        )
        return request.reply(0, None, route.encode())

    return answer


def name_server(brokers: Mapping[str, str]) -> dict[int, Handler]:
    """A name server that only knows `routes`."""
    return {RequestCode.GET_ROUTEINFO_BY_TOPIC: routes(brokers)}


def accept_heartbeats() -> dict[int, Handler]:
    """What each scripted broker needs besides the request that a test is about."""

    def ok(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.SUCCESS)

    return {RequestCode.HEART_BEAT: ok, RequestCode.UNREGISTER_CLIENT: ok}


async def until(condition: Callable[[], bool], seconds: float = 15) -> None:
    """Return when it holds; for what has no event of its own."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
