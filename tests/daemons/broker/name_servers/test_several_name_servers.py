"""Name servers that appear, disappear, do not reply, or are listed by an address server."""

import asyncio
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.routing.address_server import address_server_url, fetch_text
from mq.daemons.broker.topics.topic_table import new_topic
from mq.daemons.namesrv.app import NameServer
from mq.protocol.bodies import BrokerData, MessageQueue, QueueData
from tests.daemons.broker.name_servers.registered import Setup, run
from tests.daemons.peer import PATIENCE
from tests.interop.ports import free_port


def registered_at(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a broker has registered at a name server."""
    registered = asyncio.Event()
    register = server.routes.register

    def noticing(*args: object, **kwargs: object) -> object:
        result = register(*args, **kwargs)  # type: ignore[arg-type]
        registered.set()
        return result

    monkeypatch.setattr(server.routes, "register", noticing)
    return registered


def test_a_dead_name_server_delays_no_other_and_gets_all_topics_on_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.name_servers.name_server_link.RETRY_PERIOD", 0.02)

    async def script(setup: Setup) -> None:
        port = free_port()
        late = f"127.0.0.1:{port}"
        setup.settings.broker = setup.settings.broker.replace(
            namesrv_addr=f"{late};{setup.servers[0].address}"
        )
        async with setup.registration:
            await setup.first_round()
            assert "broker-a" in setup.servers[0].routes.brokers
            await setup.topics.update(new_topic("T", 3))
            await setup.registration.announced()
            assert "T" in setup.servers[0].routes.topics
            came = await setup.name_server("late", port)
            registered = registered_at(came, monkeypatch)
            await asyncio.wait_for(registered.wait(), PATIENCE)
            assert set(came.routes.topics) == set(setup.topics.table)

    run(tmp_path, script)


def test_another_list_of_name_servers_is_followed_while_running(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        one, two = setup.servers
        setup.settings.broker = setup.settings.broker.replace(namesrv_addr=one.address)
        async with setup.registration:
            await setup.first_round()
            assert "broker-a" in one.routes.brokers and "broker-a" not in two.routes.brokers
            left = asyncio.Event()
            one.routes.unregister = lambda *_: left.set()  # type: ignore[method-assign]
            setup.settings.update({"namesrvAddr": two.address})
            await asyncio.wait_for(left.wait(), PATIENCE)
            await setup.registration.announced()
            assert "broker-a" in two.routes.brokers

    run(tmp_path, script)


@pytest.fixture
def address_server() -> Iterator[tuple[type, str]]:
    """An HTTP server that replies with a text that the test sets."""

    class Handler(http.server.BaseHTTPRequestHandler):
        text = b""
        paths: list[str] = []  # noqa: RUF012 - one server per test

        def do_GET(self) -> None:
            type(self).paths.append(self.path)
            self.send_response(200 if self.text else 404)
            self.end_headers()
            self.wfile.write(self.text)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Handler, f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_name_servers_may_come_from_an_address_server(
    tmp_path: Path, address_server: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, domain = address_server
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def script(setup: Setup) -> None:
        handler.text = f" {setup.servers[1].address}\n".encode()  # type: ignore[attr-defined]
        server = setup.servers[1]
        registered = registered_at(server, monkeypatch)
        async with setup.registration:
            await asyncio.wait_for(registered.wait(), PATIENCE)
            assert handler.paths[0] == "/rocketmq/nsaddr"  # type: ignore[attr-defined]
            assert "broker-a" in server.routes.brokers

    run(
        tmp_path,
        script,
        namesrvAddr="",
        fetchNamesrvAddrByAddressServer="true",
        rmqAddressServerDomain=domain,
    )


def test_a_failure_of_the_address_server_is_reported(address_server: tuple[type, str]) -> None:
    handler, domain = address_server
    with pytest.raises(OSError, match="404"):
        fetch_text(address_server_url(domain, "nsaddr"))
    handler.text = b"x" * 70_000  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        fetch_text(address_server_url(domain, "nsaddr"))


def test_the_address_server_listens_on_8080_by_default() -> None:
    assert address_server_url("ns.example", "nsaddr") == "http://ns.example:8080/rocketmq/nsaddr"
    assert address_server_url("ns.example:80", "x") == "http://ns.example:80/rocketmq/x"


def test_a_name_server_that_never_replies_delays_a_change_only_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.name_servers.registration.ANNOUNCE_TIMEOUT", 0.05)

    async def script(setup: Setup) -> None:
        silent = socket.create_server(("127.0.0.1", 0))  # connects, because nobody accepts
        port = silent.getsockname()[1]
        setup.settings.broker = setup.settings.broker.replace(namesrv_addr=f"127.0.0.1:{port}")
        async with setup.registration:
            await setup.topics.update(new_topic("T", 3))
            await asyncio.wait_for(setup.registration.announced(), PATIENCE)
        silent.close()

    run(tmp_path, script)


def test_the_queues_of_a_topic_are_those_of_the_name_server_that_knows_it(tmp_path: Path) -> None:
    """The first one may have just started."""

    async def script(setup: Setup) -> None:
        async with setup.registration:
            await setup.first_round()
            routes = setup.servers[1].routes
            routes.brokers["broker-b"] = BrokerData(
                cluster="DefaultCluster", broker_name="broker-b", broker_addrs={0: "127.0.0.1:1"}
            )
            routes.topics["Far"] = {
                "broker-b": QueueData(
                    broker_name="broker-b", read_queue_nums=2, write_queue_nums=2, perm=6
                )
            }
            queues = await setup.registration.queues_of("Far")
            assert queues == [MessageQueue("Far", "broker-b", number) for number in range(2)]
            assert await setup.registration.queues_of("Nowhere") is None

    run(tmp_path, script)
