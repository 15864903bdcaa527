"""Opening and closing ports: no port stays open, nor a connection that arrives at that moment."""

import asyncio
import gc
import itertools
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from mq.daemons.accept import bind, bound_port, start_accepting, stop_accepting
from mq.daemons.console.server import HttpServer
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.tube.rpc import RpcListener
from mq.daemons.tube.web import WebServer
from tests.daemons.broker.replication.pair import master

Port = AbstractAsyncContextManager[int]  # listened on until the end of the block


@asynccontextmanager
async def of_rocketmq(_: Path) -> AsyncIterator[int]:
    async with Listener(Dispatcher({}), "127.0.0.1", 0) as listener:
        yield listener.port


@asynccontextmanager
async def of_tubemq(_: Path) -> AsyncIterator[int]:
    async with RpcListener({}, "127.0.0.1", 0) as listener:
        yield listener.port


@asynccontextmanager
async def of_administration(_: Path) -> AsyncIterator[int]:
    async with WebServer("127.0.0.1", 0, {}) as server:
        yield server.port


async def app(scope: object, receive: object, send: object) -> None: ...


@asynccontextmanager
async def of_the_console(_: Path) -> AsyncIterator[int]:
    async with HttpServer(app, "127.0.0.1", 0, None) as server:
        yield server.port


@asynccontextmanager
async def of_replication(folder: Path) -> AsyncIterator[int]:
    async with master(folder) as broker:
        yield broker.ha_master.port
        await broker.ha_master.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_any_port_is_the_same_one_at_all_addresses(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        server = await bind(asyncio.Protocol, "", 0)
        try:
            ports = {sock.getsockname()[1] for sock in server.sockets}
            assert ports == {bound_port(server)}
            await start_accepting(server)
        finally:
            stop_accepting(server)
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Unclosed objects stay open: the garbage collector would close them at some time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize(
    "port", [of_rocketmq, of_tubemq, of_administration, of_the_console, of_replication]
)
def test_a_connection_that_arrives_while_its_port_closes_is_closed(
    port: Callable[[Path], Port], turns: int, tmp_path: Path, no_collection: None
) -> None:
    """`turns` iterations of the event loop after its arrival in the kernel."""

    async def main() -> None:
        async with port(tmp_path) as number:
            peer = socket.create_connection(("127.0.0.1", number))
            for _ in range(turns):
                await asyncio.sleep(0)
        peer.setblocking(False)
        with peer:
            async with asyncio.timeout(30):
                try:
                    assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
                except ConnectionResetError:
                    pass  # it was still in the kernel

    asyncio.run(main())


@pytest.mark.parametrize(
    "port", [of_rocketmq, of_tubemq, of_administration, of_the_console, of_replication]
)
def test_a_port_that_has_closed_is_free(port: Callable[[Path], Port], tmp_path: Path) -> None:
    async def main() -> None:
        async with port(tmp_path) as number:
            pass
        with socket.create_server(("127.0.0.1", number)):
            pass

    asyncio.run(main())


made_at = pytest.mark.parametrize(
    "made",
    [
        lambda port: Listener(Dispatcher({}), "127.0.0.1", port),
        lambda port: RpcListener({}, "127.0.0.1", port),
        lambda port: WebServer("127.0.0.1", port, {}),
        lambda port: HttpServer(app, "127.0.0.1", port, None),
    ],
    ids=["rocketmq", "tubemq", "administration", "console"],
)


@made_at
def test_a_port_that_is_taken_is_named(
    made: Callable[[int], AbstractAsyncContextManager[object]],
) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            named = f"cannot listen on 127.0.0.1:{number}: another process does already"
            with pytest.raises(OSError, match=named):
                await made(number).__aenter__()

    asyncio.run(main())


@made_at
def test_a_start_that_is_cancelled_leaves_no_port(
    made: Callable[[int], AbstractAsyncContextManager[object]],
) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
        for turns in itertools.count():
            port = made(number)
            start = asyncio.create_task(port.__aenter__())
            for _ in range(turns):
                await asyncio.sleep(0)
            if start.done():
                await port.__aexit__(None, None, None)
                break
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            await asyncio.sleep(0)  # the port is free afterwards
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", number))
        assert turns > 3

    asyncio.run(main())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(("host", "named"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_a_port_that_another_process_listens_on_first_is_named(
    host: str, named: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Both had bound it: that fails for the second only when it begins to listen."""

    async def main() -> None:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as first:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            first.bind((host, 0))
            port = Listener(Dispatcher({}), *first.getsockname()[:2])
            await port.bind()
            first.listen()
            text = f"cannot listen on {named}:{port.port}: another process does already"
            with pytest.raises(OSError, match=re.escape(text)):
                await port.start()
            await port.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


def test_a_port_of_ipv6_that_is_taken_is_named() -> None:
    async def main() -> None:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
            number = taken.getsockname()[1]
            with pytest.raises(OSError, match=rf"cannot listen on \[::1\]:{number}: another"):
                await Listener(Dispatcher({}), "::1", number).bind()

    asyncio.run(main())
