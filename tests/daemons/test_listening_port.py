"""Closing ports of RocketMQ's daemons and of TubeMQ's, at any moment."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable

import pytest
import trustme

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.tube.calls import Call, Route
from mq.daemons.tube.rpc import RpcListener
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.tube.codes import Method
from mq.protocol.tube.frame import encode_frame
from mq.protocol.tube.messages import CloseRequestC2M
from mq.protocol.tube.rpc import encode_request

CLOSE = Method.CONSUMER_CLOSE_C2M

Port = Listener | RpcListener
Make = Callable[..., Port]


def of_rocketmq(work: Callable[[], Awaitable[None]], most: int = 0) -> Port:
    async def serve(command: Command, channel: Channel) -> Command:
        await work()
        return command.reply()

    return Listener(Dispatcher({1: serve}), "127.0.0.1", 0, max_connections=lambda: most)


def of_tubemq(work: Callable[[], Awaitable[None]], most: int = 0) -> Port:
    async def serve(call: Call) -> bytes:
        await work()
        return b""

    routes = {CLOSE: Route(serve, CloseRequestC2M)}
    return RpcListener(routes, "127.0.0.1", 0, max_connections=lambda: most)


def request(port: Port) -> bytes:
    if isinstance(port, Listener):
        return encode(Command(1))
    body = CloseRequestC2M(clientId="c", groupName="g").SerializeToString()
    return encode_request(1, CLOSE, body, 60_000)


async def nothing() -> None: ...


@pytest.fixture(scope="module")
def context() -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(found)
    return found


BOTH = pytest.mark.parametrize("make", [of_rocketmq, of_tubemq])


async def is_ended(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    return True


@BOTH
def test_a_connection_that_is_just_being_accepted_does_not_outlive_its_port(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        port = make(nothing)
        accept, closes = port._accept, []

        def accept_last() -> asyncio.Protocol:
            """What the event loop calls before it creates the connection."""
            closes.append(asyncio.ensure_future(port.close()))
            return accept()

        monkeypatch.setattr(port, "_accept", accept_last)
        await port.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        assert await is_ended(reader)
        assert not port.channels
        await asyncio.wait(closes)
        writer.close()

    asyncio.run(main())


@BOTH
def test_of_concurrent_connections_no_more_than_the_limit_are_accepted(make: Make) -> None:
    """asyncio accepts all waiting connections in one iteration of its loop, before the first of
    them is open.
    """

    async def main() -> None:
        async with make(nothing, most=2) as port:
            address = ("127.0.0.1", port.port)
            peers = [socket.create_connection(address) for _ in range(8)]  # none is accepted yet
            readers = [await asyncio.open_connection(sock=peer) for peer in peers]
            try:
                await asyncio.gather(*(is_ended(reader) for reader, _ in readers[2:]))
                assert len(port.channels) == 2
            finally:
                for _, writer in readers:
                    writer.close()

    asyncio.run(main())


@BOTH
def test_a_close_that_is_cancelled_leaves_no_connection_open(make: Make) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await may_end.wait()

    async def main() -> None:
        port = make(stubborn)
        await port.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(request(port))
        await begun.wait()
        closing = asyncio.ensure_future(port.close())
        await asyncio.sleep(0)  # it waits for running requests
        closing.cancel()
        await asyncio.wait([closing])
        assert await is_ended(reader)
        may_end.set()
        await port.close()
        assert not port.channels
        writer.close()

    asyncio.run(main())


@BOTH
def test_of_several_closes_of_a_port_a_cancelled_one_does_not_end_the_others(
    make: Make,
) -> None:
    async def main() -> None:
        port = make(nothing)
        await port.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
        writer.write(request(port))
        await reader.read(1)
        first, second = (asyncio.ensure_future(port.close()) for _ in range(2))
        for _ in range(2):
            await asyncio.sleep(0)
        first.cancel()
        await second
        assert await is_ended(reader)
        await port.close()
        writer.close()

    asyncio.run(main())


def test_a_peer_that_never_starts_tls_counts_and_delays_no_stop(
    context: ssl.SSLContext,
) -> None:
    """From Python 3.12 on a server waits a minute for the handshakes of asyncio."""

    async def main() -> None:
        port = RpcListener({}, "127.0.0.1", 0, tls=context, max_connections=lambda: 1)
        await port.start()
        silent, writer = await asyncio.open_connection("127.0.0.1", port.port)
        second, other = await asyncio.open_connection("127.0.0.1", port.port)
        assert await is_ended(second)  # one is open already
        assert port.counters["refused_connections"] == 1
        await port.close()
        assert await is_ended(silent)
        for one in (writer, other):
            one.close()

    asyncio.run(main())


def test_a_peer_without_tls_is_closed_where_tls_is_required(context: ssl.SSLContext) -> None:

    async def main() -> None:
        async with RpcListener({}, "127.0.0.1", 0, tls=context) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            writer.write(encode_frame(1, b"x"))
            assert await is_ended(reader)
            assert port.counters["broken_frames"] == 1
            writer.close()

    asyncio.run(main())
