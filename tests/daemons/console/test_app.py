"""The console as a daemon: its logs and metrics, reloading, and the end of a request."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from mq.daemons.console import server
from mq.daemons.console.call import Call
from mq.daemons.console.route import Page, Permission, Route
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Consoles


def test_a_page_that_nobody_waits_for_is_given_up(console: Consoles) -> None:
    async def main() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def forever(call: Call) -> Page:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        route = Route("/forever", forever, Permission.READ, "Forever")
        async with console(routes=(route,)) as site:
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            head = f"GET /c/test/forever HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n"
            writer.write(head.encode())
            await begun.wait()
            writer.close()
            async with asyncio.timeout(60):
                await ended.wait()
            assert reader

    asyncio.run(main())


def test_a_page_that_takes_too_long_says_so(console: Consoles) -> None:
    async def forever(call: Call) -> Page:
        await asyncio.Event().wait()
        raise AssertionError

    route = Route("/forever", forever, Permission.READ, "Forever")

    async def main() -> None:
        async with console({"pageTimeoutMillis": "100"}, routes=(route,)) as site:
            assert (await site.get("/forever")).status == 504

    asyncio.run(main())


def test_a_connection_that_asks_for_nothing_is_closed(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.05)

    async def main() -> None:
        async with console() as site:
            async with asyncio.timeout(60):
                assert await site.exchange(b"GET / HTTP/1.1\r\nHost: ") == b""
                assert await site.exchange(b"") == b""

    asyncio.run(main())


def test_no_more_connections_are_taken_than_the_limit(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 0)

    async def main() -> None:
        async with console() as site:
            try:
                assert await site.exchange(b"GET / HTTP/1.1\r\n\r\n") == b""
            except ConnectionError:
                pass

    asyncio.run(main())


def test_new_connections_get_the_certificate_as_it_is_now(
    console: Consoles, tmp_path: Path
) -> None:
    paths = {name: tmp_path / name for name in ("cert.pem", "key.pem")}

    def write() -> bytes:
        made = trustme.CA().issue_cert("127.0.0.1")
        paths["key.pem"].write_bytes(made.private_key_pem.bytes())
        paths["cert.pem"].write_bytes(made.cert_chain_pems[0].bytes())
        return ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())

    settings = {
        "tls.server.certPath": str(paths["cert.pem"]),
        "tls.server.keyPath": str(paths["key.pem"]),
    }

    async def shown(port: int, context: ssl.SSLContext | None) -> bytes:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        found = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.close()
        assert isinstance(found, bytes)
        return found

    async def main() -> None:
        first = write()
        async with console(settings, users={"ann": "reader"}) as site:
            assert await shown(site.port, site.tls) == first
            second = write()
            site.console.reload()
            assert await shown(site.port, site.tls) == second
            paths["cert.pem"].write_text("broken")
            site.console.reload()
            assert await shown(site.port, site.tls) == second
            assert (await site.log_in("ann")).status == 200

    asyncio.run(main())


def test_it_tells_prometheus_what_it_does(console: Consoles) -> None:
    async def main() -> None:
        async with console({"metricsPort": "0"}, routes=ROUTES) as site:
            await site.get("/")
            request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", site.console.metrics_port)
            writer.write(request)
            text = (await reader.read()).decode()
            writer.close()
            assert "mq_console_requests_total 1.0" in text
            assert "mq_console_streams 0.0" in text
            assert 'mq_console_snapshot_timestamp_seconds{cluster="test"}' in text
            assert site.console.ready_text().startswith("console: http://127.0.0.1:")
            assert [line for line in site.console.state() if line.startswith("requests:")]

    asyncio.run(main())


def test_how_pages_look_is_kept_in_cookies_and_nothing_else_is(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            page = await site.get("/")
            form = page.soup.find("form", action="/preferences")
            assert form is not None
            token = form.find("input", attrs={"name": "csrf"})
            assert token is not None
            fields = {
                "csrf": str(token["value"]),
                "next": "/c/test/operations?user=x",
                "theme": "dark",
                "language": "zh-CN",
                "zone": "Asia/Shanghai",
                "keys": "off",
                "other": "1",
            }
            after = await site.post("/preferences", fields)
            assert after.url == "/c/test/operations?user=x"
            assert set(site.cookies) == {"mq", "mq-theme", "mq-language", "mq-zone", "mq-keys"}
            html = after.soup.html
            assert html is not None and (html["data-theme"], html["lang"]) == ("dark", "zh-CN")
            assert after.soup.body is not None and after.soup.body["data-keys"] == "off"
            bad = fields | {"theme": "x", "language": "x", "zone": "../x", "next": "//evil.example"}
            before = dict(site.cookies)
            assert (await site.post("/preferences", bad)).url == "/c/test/"
            assert site.cookies == before

    asyncio.run(main())


def test_assets_are_kept_for_ever_under_their_hash_and_small(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            page = await site.get("/")
            assert len(page.body) < 60_000
            assets = page.soup.find_all("script") + page.soup.find_all("link")
            for element in assets:
                address = str(element.get("src") or element.get("href"))
                answer = await site.request("GET", address)
                assert answer.status == 200
                assert "immutable" in answer.header("cache-control")
                if address.endswith("console.js"):
                    assert len(answer.body) <= 10_240
            assert (await site.get("/static/0000000000000000/console.css")).status == 404
            assert (await site.get("/static/x/..%2F..%2Fapp.py")).status == 404

    asyncio.run(main())
