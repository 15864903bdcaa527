"""clusterTest: a name server that queries the name servers of another environment for unknown
topics.
"""

import asyncio
import http.server
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mq.daemons.namesrv import product_env
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.namesrv.product_env import MOST_ASKED
from mq.protocol.bodies import TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.route import GetRouteInfoRequestHeader
from tests.daemons.namesrv.servers import header, register, topic
from tests.daemons.peer import Peer


class AddressServer(http.server.ThreadingHTTPServer):
    """Replies to every path with `text`, and records the path."""

    text = ""

    def __init__(self) -> None:
        self.paths: list[str] = []
        super().__init__(("127.0.0.1", 0), _Page)

    @property
    def domain(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Page(http.server.BaseHTTPRequestHandler):
    server: AddressServer

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def addresses() -> Iterator[AddressServer]:
    with AddressServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def ask(peer: Peer, name: str) -> Command:
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    return await peer.ask(code, GetRouteInfoRequestHeader(topic=name))


def settings(tmp_path: Path, domain: str = "") -> NamesrvSettings:
    given = {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": f"{tmp_path}/kv.json"}
    if domain:
        given |= {"clusterTest": "true", "rocketmq.namesrv.domain": domain}
    return NamesrvSettings.load(None, given)


def run(
    tmp_path: Path, addresses: AddressServer, script: Callable[[Peer], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with NameServer(settings(tmp_path, addresses.domain)) as here, Peer(here.port) as p:
            await script(p)

    asyncio.run(main())


def test_a_topic_that_is_not_known_here_is_looked_up_there(
    tmp_path: Path, addresses: AddressServer
) -> None:
    async def main() -> None:
        async with NameServer(settings(tmp_path)) as there, Peer(there.port) as broker:
            addresses.text = there.address
            here = NameServer(settings(tmp_path, addresses.domain))
            async with here, Peer(here.port) as peer:
                await register(broker, topic("There"))
                await register(peer, topic("Here"), told=header("broker-b", "10.0.0.2:10911"))
                for name, address in (("There", "10.0.0.1:10911"), ("Here", "10.0.0.2:10911")):
                    reply = await ask(peer, name)
                    assert reply.code == ResponseCode.SUCCESS, reply
                    (found,) = TopicRouteData.decode(reply.body).broker_datas
                    assert found.broker_addrs == {0: address}
                nowhere = await ask(peer, "Nowhere")
                assert nowhere.code == ResponseCode.TOPIC_NOT_EXIST
                assert "No topic route info in name server" in (nowhere.remark or "")
                assert (await ask(broker, "Here")).code == ResponseCode.TOPIC_NOT_EXIST

    asyncio.run(main())
    assert addresses.paths[0] == "/rocketmq/nsaddr-center?nofix=1"


@pytest.mark.parametrize("text", ["", "no address", "127.0.0.1:1"])
def test_an_unreachable_environment_knows_no_topic(
    tmp_path: Path, addresses: AddressServer, text: str
) -> None:
    async def script(peer: Peer) -> None:
        assert (await ask(peer, "T")).code == ResponseCode.TOPIC_NOT_EXIST

    addresses.text = text
    run(tmp_path, addresses, script)


def test_an_environment_that_hangs_blocks_no_request_and_gets_few_queries(
    tmp_path: Path, addresses: AddressServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(peer: Peer) -> None:
        many = [Peer(peer._port) for _ in range(MOST_ASKED + 1)]
        for each in many:
            await each.__aenter__()
        asked = [asyncio.create_task(ask(p, f"T{i}")) for i, p in enumerate(many)]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        (refused,) = [task.result() for task in done]
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "clusterTest" in (refused.remark or "")
        assert (await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == ResponseCode.SUCCESS
        assert not any(task.done() for task in waiting)
        replies = await asyncio.gather(*asked)
        assert [r.code for r in replies].count(ResponseCode.TOPIC_NOT_EXIST) == MOST_ASKED
        for each in many:
            await each.close()

    monkeypatch.setattr(product_env, "TIMEOUT", 2.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as hanging:
        addresses.text = f"127.0.0.1:{hanging.getsockname()[1]}"
        run(tmp_path, addresses, script)
