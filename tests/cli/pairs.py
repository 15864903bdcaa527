"""Our daemons for tests of the command: a pair in a thread, a dead broker, messages."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from mq.client.admin import Admin
from mq.client.producer.outgoing import MAX_BODY
from mq.client.producer.producer import Producer
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import (
    DataVersion,
    MessageQueue,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers import RegisterBrokerRequestHeader
from mq.protocol.message import Message
from tests.cli.support import Finished

DEAD = "127.0.0.1:1"  # no listener there
T = TypeVar("T")


@contextmanager
def running_pair(
    properties: Mapping[str, str] | None = None,
    *,
    store: Path | None = None,
    ports: tuple[int, int] = (0, 0),
) -> Iterator[Standalone]:
    """Our name server and broker, in a loop of their own thread."""

    @asynccontextmanager
    async def parts() -> AsyncIterator[Standalone]:
        made = Standalone(
            store,
            name_server_port=ports[0],
            broker_port=ports[1],
            properties=properties,
        )
        async with made as pair:
            await pair.broker.registration.first_round.wait()
            yield pair

    with in_thread(parts()) as pair:
        yield pair


@contextmanager
def another_broker(
    pair: Standalone, name: str, store: Path, *, properties: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """A second broker for the pair; removed from the routes after the block, like a dead one."""
    settings = BrokerSettings.load(
        None,
        {
            "brokerName": name,
            "listenPort": "0",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": pair.name_server_address,
            "storePathRootDir": str(store),
            **(properties or {}),
        },
    )

    @asynccontextmanager
    async def parts() -> AsyncIterator[Broker]:
        async with Broker(settings) as broker:
            await broker.registration.first_round.wait()
            yield broker

    with in_thread(parts()) as broker:
        yield broker


@contextmanager
def in_thread(parts: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Run `parts` in a loop of its own thread; yield its result."""
    started: Future[T] = Future()
    stop: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        event = asyncio.Event()
        stop.set_result((asyncio.get_running_loop(), event))
        async with parts as given:
            started.set_result(given)
            await event.wait()

    def main() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=main)
    thread.start()
    given = started.result(30)
    try:
        yield given
    finally:
        loop, loop_event = stop.result()
        loop.call_soon_threadsafe(loop_event.set)
        thread.join(30)


@contextmanager
def dead_broker(
    name_server: str,
    *topics: str,
    name: str = "broker-dead",
    cluster: str = "DefaultCluster",
    address: str = DEAD,
    number: int = 0,
) -> Iterator[None]:
    """Register a broker that does not answer at the name server, with topics of two queues.

    `number` is its id, not 0 for a slave.
    """
    command = registration(*topics, name=name, cluster=cluster, address=address, number=number)
    with BlockingSession(name_server) as session:
        run(session.call(name_server, command))
        yield


def registration(
    *topics: str,
    name: str = "broker-dead",
    cluster: str = "DefaultCluster",
    address: str = DEAD,
    number: int = 0,
) -> Command:
    """Return a registration of a broker, for `dead_broker`."""
    configs = {
        topic: TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=2, perm=6)
        for topic in topics
    }
    header = RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=address,
        broker_id=number,
    )
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            topic_config_table=configs, data_version=DataVersion(timestamp=1, counter=1)
        ),
        filter_server_list=[],
    )
    return Command(RequestCode.REGISTER_BROKER, header.encode(), body.encode())


def make_topic(pair: Standalone, topic: str, queues: int = 2, *, at: Broker | None = None) -> None:
    """Create a topic at a broker, the pair's own by default, and wait until it is in the routes."""
    config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    broker = at or pair.broker
    name = broker.settings.broker.broker_name
    with BlockingSession(pair.name_server_address) as session:
        run(Admin(session).create_topic(broker.address, config))
        route = run(session.route(topic))
        assert name in {data.broker_name for data in route.broker_datas}


def put(
    pair: Standalone,
    messages: Iterable[Message],
    queue_id: int | None = None,
    *,
    broker: str = "",
    max_body: int = MAX_BODY,
) -> None:
    """Send messages, one after the other, to one queue or to the queues in turn.

    `broker` is the name of the queue's; the pair's own by default. `max_body` is the producer's.
    """
    name = broker or pair.broker.settings.broker.broker_name

    async def main() -> None:
        async with Producer(pair.name_server_address, "put", max_body=max_body) as producer:
            for message in messages:
                queue = None
                if queue_id is not None:
                    queue = MessageQueue(message.topic, name, queue_id)
                await producer.send(message, queue)

    asyncio.run(main())


# -B: a compiled module that does not fit would be truncated there, for all later processes (until
# Python 3.13.1 short writes are not detected).
_LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
os.execv(sys.executable, [sys.executable, "-B", "-m", "mq", *sys.argv[2:]])
"""


def full_disk(pair: Standalone, most: int, *arguments: str) -> Finished:
    """Run `mq` in a process whose files cannot grow over `most` bytes, as on a full disk."""
    command = [sys.executable, "-c", _LIMITED, str(most), *arguments]
    ended = subprocess.run(
        [*command, "-n", pair.name_server_address], capture_output=True, text=True, timeout=60
    )
    return Finished(ended.returncode, ended.stdout, ended.stderr)
