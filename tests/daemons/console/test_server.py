"""The port of the console: limits for clients without a login."""

import asyncio
import resource
from pathlib import Path

import pytest
import trustme

from mq.daemons.console import server
from mq.daemons.console.call import Call
from mq.daemons.console.route import Download, Permission, Route
from mq.daemons.console.security import shell
from tests.daemons.console.site import Consoles, Site
from tests.waiting import until

LARGE = 8 * 1024 * 1024


def test_a_body_that_does_not_come_keeps_nobody_out(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.2)

    async def main() -> None:
        async with console(users={"ann": "reader"}) as site, asyncio.timeout(60):
            begun = (
                f"POST /login HTTP/1.1\r\nHost: {site.host}:{site.port}\r\nContent-Length: 9\r\n"
                "Content-Type: application/x-www-form-urlencoded\r\n"
                "Sec-Fetch-Site: same-origin\r\n\r\nn"
            )
            tries = [site.exchange(begun.encode()) for _ in range(shell.MOST_AT_ONCE)]
            assert set(await asyncio.gather(*tries)) == {b""}
            assert site.console.shell.active == 0
            assert (await site.get("/login")).status == 200

    asyncio.run(main())


def test_bodies_that_do_not_come_block_no_request(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "reader"}) as site, asyncio.timeout(60):
            opened = []
            for _ in range(shell.MOST_AT_ONCE + 20):
                connection = await asyncio.open_connection(site.host, site.port)
                connection[1].write(unfinished(site))
                opened.append(connection)
            page = await site.get("/login")
            assert page.status == 200
            await until(lambda: site.console.shell.requests > shell.MOST_AT_ONCE + 20)
            assert site.console.shell.active == 0
            assert (await site.get("/login")).status == 200
            for _, writer in opened:
                writer.close()

    asyncio.run(main())


def test_connections_without_a_request_make_room_for_others(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)

    async def main() -> None:
        async with console(users={"ann": "reader"}) as site, asyncio.timeout(60):
            opened = []
            for _ in range(10):
                connection = await asyncio.open_connection(site.host, site.port)
                connection[1].write(unfinished(site))
                opened.append(connection)
            assert (await site.get("/login")).status == 200
            for _, writer in opened:
                writer.close()

    asyncio.run(main())


def test_incomplete_bodies_of_an_address_have_a_limit(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "MOST_OF_ADDRESS", 10)

    async def main() -> None:
        async with console(users={"ann": "reader"}) as site, asyncio.timeout(60):
            opened = [await asyncio.open_connection(site.host, site.port) for _ in range(3)]
            for _, writer in opened:
                writer.write(unfinished(site, b"name=a"))
            done = asyncio.as_completed([reader.read(12) for reader, _ in opened])
            assert await next(done) == b"HTTP/1.1 503"
            for _, writer in opened:
                writer.close()
            assert (await site.get("/login")).status == 200
            await until(lambda: not site.console.shell._incoming)

    asyncio.run(main())


def unfinished(site: Site, begun: bytes = b"n") -> bytes:
    """A request with an incomplete body."""
    head = (
        f"POST /login HTTP/1.1\r\nHost: {site.host}:{site.port}\r\nContent-Length: 99\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin\r\n\r\n"
    )
    return head.encode() + begun


def test_the_second_request_of_a_connection_has_to_come_as_well(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)

    async def main() -> None:
        async with console(users={"ann": "reader"}) as site, asyncio.timeout(60):
            whole = f"GET /login HTTP/1.1\r\nHost: {site.host}:{site.port}\r\n\r\n"
            answer = await site.exchange(whole.encode() + b"GET /login HT")
            assert answer.startswith(b"HTTP/1.1 200")
            assert await closes_after(site, whole.encode())

    async def closes_after(site: Site, whole: bytes) -> bool:
        reader, writer = await asyncio.open_connection(site.host, site.port)
        writer.write(whole)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"G")
        await reader.read()
        writer.close()
        return True

    asyncio.run(main())


def test_who_does_not_read_an_answer_keeps_no_place(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 0.2)

    async def large(call: Call) -> Download:
        return Download("large.bin", bytes(LARGE))

    route = Route("/large", large, Permission.READ, "Large")

    async def main() -> None:
        async with console(routes=(route,)) as site, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(site.host, site.port)
            writer.write(
                f"GET {site.of_cluster('/large')} HTTP/1.1\r\n"
                f"Host: {site.host}:{site.port}\r\n\r\n".encode()
            )
            await reader.readuntil(b"\r\n\r\n")
            while site.console.server.state.connections:  # noqa: ASYNC110 - the server sees it
                await asyncio.sleep(0)
            assert site.console.shell.active == 0
            writer.close()
            monkeypatch.undo()  # a client that reads gets all of it
            assert len(await site.exchange(writing(site))) > LARGE

    def writing(site: Site) -> bytes:
        return (
            f"GET {site.of_cluster('/large')} HTTP/1.1\r\nConnection: close\r\n"
            f"Host: {site.host}:{site.port}\r\n\r\n"
        ).encode()

    asyncio.run(main())


def test_a_handshake_has_to_come_as_well(
    console: Consoles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
    made = trustme.CA().issue_cert("127.0.0.1")
    (tmp_path / "key.pem").write_bytes(made.private_key_pem.bytes())
    (tmp_path / "cert.pem").write_bytes(made.cert_chain_pems[0].bytes())
    settings = {
        "tls.server.certPath": str(tmp_path / "cert.pem"),
        "tls.server.keyPath": str(tmp_path / "key.pem"),
    }

    async def main() -> None:
        async with console(settings) as site, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(site.host, site.port)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(main())


def test_connections_leave_files_for_what_the_console_does(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 600.0)

    async def main() -> None:
        async with console() as site, asyncio.timeout(60):
            monkeypatch.setattr(resource, "getrlimit", lambda which: (20, 20))
            streams = [await asyncio.open_connection(site.host, site.port) for _ in range(12)]
            ended = [asyncio.create_task(reader.read(1)) for reader, _ in streams]
            done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            assert done
            assert len(site.console.server.state.connections) <= 10
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)
            for _, writer in streams:
                writer.close()

    asyncio.run(main())
