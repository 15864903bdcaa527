"""A scripted daemon: it answers each request code with a function, on a real port."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count

from mq.client.errors import RouteNotFound
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher, Handler
from mq.daemons.listener import Listener
from mq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.interop.ports import free_port

ECHO = 901
SILENT = 902
REFUSE = 903
HANG_UP = 904


@asynccontextmanager
async def scripted(handlers: Mapping[int, Handler]) -> AsyncIterator[str]:
    """Serve `handlers` until the block ends; yields the address, "host:port"."""
    listener = Listener(Dispatcher(handlers), "127.0.0.1", 0)
    await listener.start()
    try:
        yield f"127.0.0.1:{listener.port}"
    finally:
        await listener.close()


def routes(brokers: Mapping[str, str], queues: int = 2) -> Handler:
    """Return a name server's handler: every topic is at these brokers, given as name: address."""

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
    """Return the handlers of a name server that serves only routes."""
    return {RequestCode.GET_ROUTEINFO_BY_TOPIC: routes(brokers)}


def accept_heartbeats() -> dict[int, Handler]:
    """Return the handlers that each scripted broker needs in addition to those of the test."""

    def ok(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.SUCCESS)

    return {RequestCode.HEART_BEAT: ok, RequestCode.UNREGISTER_CLIENT: ok}


async def routed(session: Session, topic: str) -> None:
    """Wait until a name server knows a topic that a broker has just created automatically.

    If the registration fails, the broker repeats it with all topics half a minute later, as Java's
    brokers do.
    """
    async with asyncio.timeout(60):
        while True:
            try:
                await session.fresh_route(topic)
                return
            except RouteNotFound:
                await asyncio.sleep(0.01)


def echo(request: Command, channel: Channel) -> Command:
    return request.reply(0, request.fields, bytes(request.body))


def silent(request: Command, channel: Channel) -> None:
    return None


def refuse(request: Command, channel: Channel) -> Command:
    return request.reply(ResponseCode.SYSTEM_BUSY, remark="too much")


def hang_up(request: Command, channel: Channel) -> None:
    channel.close()


def closed_port() -> str:
    return f"127.0.0.1:{free_port()}"


def stores(name: str, asked: Counter[str]) -> dict[int, Handler]:
    offsets = count()

    def answer(request: Command, channel: Channel) -> Command:
        asked[name] += 1
        place = {
            "msgId": "0" * 32,
            "queueId": request.fields["e"],
            "queueOffset": str(next(offsets)),
        }
        return request.reply(0, place)

    return {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: answer}


def refuses(name: str, asked: Counter[str]) -> dict[int, Handler]:
    def answer(request: Command, channel: Channel) -> Command:
        asked[name] += 1
        return request.reply(ResponseCode.SYSTEM_BUSY, remark="too much to do")

    return {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: answer}


HANDLERS = {ECHO: echo, SILENT: silent, REFUSE: refuse, HANG_UP: hang_up}
