"""Name servers listed by an HTTP server, and lists that change while a client runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.errors import BadAnswer, ClientError, ConnectError
from mq.client.producer.producer import Producer
from mq.client.transport import session_routes as routes_module
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster
from tests.client.scripted import name_server, scripted
from tests.interop.ports import free_port
from tests.waiting import until


class Page:
    """The response of the address server."""

    def __init__(self, text: str, status: str = "200 OK") -> None:
        self.text = text
        self.status = status
        self.asked = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        body = self.text.encode()
        head = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def address_server(page: Page) -> AsyncIterator[str]:
    server = await asyncio.start_server(page.serve, "127.0.0.1", 0)
    async with server:
        page.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/rocketmq/nsaddr"
        yield page.url


def test_clients_find_their_name_servers_at_an_address_server() -> None:
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    def command(url: str) -> list[str]:
        with BlockingSession(url) as session:
            run(session.route(TOPIC))
            return list(session.name_servers)

    async def scenario() -> None:
        async with cluster() as there, address_server(Page(f"{there.address}\n")) as url:
            async with Producer(url) as producer:
                assert producer.session.client_id.startswith("127.0.0.1@")
                await producer.send(Message(TOPIC, b"1"))
            async with Session(url) as session:
                await Admin(session).put_kv("n", "key", "value")  # its first request
                assert await Admin(session).get_kv(there.address, "n", "key") == "value"
            consumer = Consumer(url, GROUP, {TOPIC: "*"}, listener=listen, consume_from=FIRST)
            async with consumer:
                await until(lambda: got == [b"1"])
            assert await asyncio.to_thread(command, url) == [there.address]

    asyncio.run(scenario())


def test_a_changed_list_is_used_and_an_unreadable_one_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes_module, "ADDRESS_SERVER_SECONDS", 0.05)

    async def scenario() -> None:
        async with (
            scripted(name_server({"a": "1.2.3.4:5"})) as first,
            scripted(name_server({"b": "1.2.3.4:6"})) as second,
        ):
            page = Page(first)
            async with address_server(page) as url, Session(url) as session:
                assert (await session.route("one")).broker_datas[0].broker_name == "a"
                page.text = second
                await until(lambda: session.name_servers == (second,))
                assert (await session.route("two")).broker_datas[0].broker_name == "b"
                for text, status in (("nonsense", "200 OK"), (first, "500 No"), ("", "200 OK")):
                    page.text, page.status = text, status
                    asked = page.asked
                    await until(lambda a=asked: page.asked >= a + 2)  # type: ignore[misc]
                    assert session.name_servers == (second,)

    asyncio.run(scenario())


def test_name_servers_can_be_set_explicitly() -> None:
    async def scenario() -> None:
        async with (
            scripted(name_server({"a": "1.2.3.4:5"})) as first,
            scripted(name_server({"b": "1.2.3.4:6"})) as second,
            Session(first) as session,
        ):
            await session.route("one")
            session.set_name_servers(f"127.0.0.1:{free_port()};{second}")
            assert (await session.route("two")).broker_datas[0].broker_name == "b"
            session.set_name_servers([first, second])
            # the server in use
            assert (await session.route("three")).broker_datas[0].broker_name == "b"
            with pytest.raises(ClientError):
                session.set_name_servers("")
            with pytest.raises(ClientError, match="was given its name servers"):
                await session.ask_address_server()

    asyncio.run(scenario())


def test_an_error_names_an_address_server_without_a_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Session(f"http://127.0.0.1:{free_port()}/x") as session:
            with pytest.raises(ConnectError, match=r"http://127\.0\.0\.1:\d+/x: .*refused"):
                await session.route(TOPIC)
        async with address_server(Page("what?")) as url, Session(url) as session:
            with pytest.raises(BadAnswer, match=r"/rocketmq/nsaddr: .*not host:port"):
                await session.route(TOPIC)

    asyncio.run(scenario())
    with pytest.raises(ClientError):  # only over HTTP
        Session(f"file://{tmp_path}")
