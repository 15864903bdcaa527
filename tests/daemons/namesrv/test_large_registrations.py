"""Registrations with very many topics, as brokers of Java send them: one compressed frame."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from mq.daemons.namesrv.app import NameServer
from mq.daemons.registration_body import body_crc32, compress
from mq.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.headers.broker import (
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from tests.daemons.namesrv.servers import header, serve, topic, wrapper
from tests.daemons.own_time import settled, thread_time
from tests.daemons.peer import Peer

COUNT = 20_000
NAMES = [f"topic-{number:05d}" for number in range(COUNT)]


def registration(*topics: TopicConfig, counter: int, compressed: bool = True) -> Command:
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper(*topics, counter=counter))
    data = compress(body) if compressed else body.encode()
    told: RegisterBrokerRequestHeader = header(compressed=compressed, body_crc32=body_crc32(data))
    return Command(RequestCode.REGISTER_BROKER, told.encode(), data)


@cache
def large() -> Command:
    return registration(*map(topic, NAMES), counter=1)


@cache
def changed() -> Command:
    return registration(*(topic(name, queues=8) for name in NAMES), counter=2)


async def longest_gap(work: Awaitable[object]) -> float:
    """The longest time in which the loop did nothing else, as a fraction of the total.

    In CPU time of the thread: other processes do not count.
    """
    task = asyncio.ensure_future(work)
    began = last = thread_time()
    longest = 0.0
    while not task.done():
        await asyncio.sleep(0)
        now = thread_time()
        longest, last = max(longest, now - last), now
    await task
    return longest / (last - began)


def test_the_loop_serves_others_while_very_many_topics_are_registered(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        gaps = [
            await longest_gap(peer.ask(command.code, command.fields, bytes(command.body)))
            for command in (large(), changed())
        ]
        assert min(gaps) < 0.3  # usually 0.05
        assert len(server.routes.topics) == COUNT
        queues = {q.write_queue_nums for by in server.routes.topics.values() for q in by.values()}
        assert queues == {8}

    with settled():
        serve(tmp_path, script)


def test_requests_after_a_large_registration_apply_after_it(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        small = registration(topic("topic-00000", queues=5), counter=3, compressed=False)
        version = DataVersion(timestamp=1000, counter=3)
        asked = QueryDataVersionRequestHeader(
            broker_name="broker-a",
            broker_addr="10.0.0.1:10911",
            cluster_name="DefaultCluster",
            broker_id=0,
        )
        query = Command(RequestCode.QUERY_DATA_VERSION, asked.encode(), version.encode())
        commands = [large(), changed(), small, query]
        for number, command in enumerate(commands, 1):
            command.opaque = number
            peer.writer.write(encode(command))
        replies = [await peer.receive() for _ in commands]
        assert [reply.opaque for reply in replies] == [1, 2, 3, 4]
        assert [reply.code for reply in replies] == [ResponseCode.SUCCESS] * 4
        assert replies[3].fields["changed"] == "false"
        assert server.routes.topics["topic-00000"]["broker-a"].write_queue_nums == 5
        assert server.routes.topics["topic-00001"]["broker-a"].write_queue_nums == 8

    serve(tmp_path, script)


def test_a_broker_that_unregisters_after_a_large_registration_is_removed(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        leaving = UnRegisterBrokerRequestHeader(
            broker_name="broker-a",
            broker_addr="10.0.0.1:10911",
            cluster_name="DefaultCluster",
            broker_id=0,
        )
        large().opaque = 1
        peer.writer.write(encode(large()))
        farewell = Command(RequestCode.UNREGISTER_BROKER, leaving.encode(), opaque=2)
        peer.writer.write(encode(farewell))
        assert [(await peer.receive()).opaque for _ in range(2)] == [1, 2]
        assert (server.routes.live, server.routes.topics) == ({}, {})

    serve(tmp_path, script)


def _half_way(server: NameServer) -> Callable[[], bool]:
    return lambda: 0 < len(server.routes.topics) < COUNT


def test_nothing_is_left_of_a_broker_that_disconnects_during_registration(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        moments: list[Callable[[], bool]] = [
            lambda: bool(server.listener.dispatcher.tasks),
            _half_way(server),
        ]
        for half_way in moments:
            async with Peer(server.port) as broker:
                broker.writer.write(encode(large()))
                async with asyncio.timeout(30):
                    while not half_way():  # noqa: ASYNC110 - turn by turn
                        await asyncio.sleep(0)
                for channel in list(server.listener.channels):
                    if channel.remote == broker.address:
                        channel.abort()
            async with asyncio.timeout(30):
                while server.listener.dispatcher.tasks:  # noqa: ASYNC110 - turn by turn
                    await asyncio.sleep(0)
            assert (server.routes.live, server.routes.topics) == ({}, {})

    serve(tmp_path, script)


def test_the_newer_of_two_connections_of_a_broker_counts(tmp_path: Path) -> None:
    """It reconnects while its registration over the old connection is still being processed."""

    async def script(server: NameServer, peer: Peer) -> None:
        async with Peer(server.port) as old:
            old.writer.write(encode(large()))
            async with asyncio.timeout(30):
                while not _half_way(server)():  # noqa: ASYNC110 - turn by turn
                    await asyncio.sleep(0)
            new = registration(topic("topic-19999", queues=3), topic("own"), counter=1)
            reply = await peer.ask(new.code, new.fields, bytes(new.body))
            assert reply.code == ResponseCode.SUCCESS
            assert (await old.receive()).code == ResponseCode.SYSTEM_ERROR
            assert server.routes.topics["topic-19999"]["broker-a"].write_queue_nums == 3
            assert server.routes.topics["own"]["broker-a"].write_queue_nums == 4

    serve(tmp_path, script)
