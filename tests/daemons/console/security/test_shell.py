"""The checks of every request, and the headers of every response."""

import asyncio
import json

import pytest

from mq.daemons.console.security import shell
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Consoles

EVIL = "https://evil.example"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a:b"]
)
def test_a_host_that_is_not_ours_is_refused(console: Consoles, host: str) -> None:
    async def main() -> None:
        async with console() as site:
            assert (await site.get("/", Host=host)).status == 400
            for own in ("localhost", f"127.0.0.1:{site.port}", "[::1]:8082"):
                assert (await site.get("/", Host=own)).status == 200

    asyncio.run(main())


def test_every_answer_has_the_headers(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            asset = str((await site.get("/")).soup.find("link", rel="stylesheet")["href"])  # type: ignore[index]
            answers = [
                await site.get("/"),
                await site.get("/nothing"),
                await site.get("/fails"),
                await site.get("/?format=json"),
                await site.get("/?format=csv"),
                await site.get("/login"),
                await site.api("/"),
                await site.request("GET", "/", headers={"Host": "evil.example"}),
                await site.request("DELETE", "/"),
                await site.request("GET", asset),
            ]
            for answer in answers:
                policy = dict(
                    part.strip().split(" ", 1)
                    for part in answer.header("content-security-policy").split(";")
                )
                assert policy == {
                    "default-src": "'none'",
                    "base-uri": "'none'",
                    "frame-ancestors": "'none'",
                    **{
                        name: "'self'"
                        for name in (
                            *("script-src", "style-src", "img-src", "connect-src"),
                            "form-action",
                        )
                    },
                }, answer.url
                assert answer.header("x-content-type-options") == "nosniff"
                assert answer.header("referrer-policy") == "same-origin"
                assert answer.header("cross-origin-opener-policy") == "same-origin"
                assert not answer.header("access-control-allow-origin")
                assert not answer.header("server")
                cached = "immutable" in answer.header("cache-control")
                assert cached == (answer.url == asset)
                assert cached or answer.header("cache-control") == "no-store"

    asyncio.run(main())


def test_pages_have_no_script_or_style_of_their_own(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            for path in ("/", "/operations", f"/create/{site.pair.broker.address}", "/nothing"):
                soup = (await site.get(path)).soup
                assert soup.find_all("style") == []
                assert all(script.get("src") for script in soup.find_all("script"))
                for element in soup.find_all(True):
                    assert not [n for n in element.attrs if n == "style" or n.startswith("on")]
                for element in soup.find_all(src=True) + soup.find_all("link"):
                    assert str(element.get("src") or element.get("href")).startswith("/static/")

    asyncio.run(main())


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"},
        {"Origin": EVIL, "Sec-Fetch-Site": ""},
        {"Origin": "null", "Sec-Fetch-Site": ""},
        {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
        {"Origin": "", "Sec-Fetch-Site": "none"},
    ],
)
def test_a_form_of_another_site_changes_nothing(console: Consoles, headers: dict[str, str]) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            path = f"/create/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path), {"topic": "Orders"})
            fields = {
                str(one["name"]): str(one["value"]) for one in preview.form().find_all("input")
            }
            given = {name: value for name, value in headers.items() if value}
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            from urllib.parse import urlencode

            answer = await site.request(
                "POST", site.of_cluster(path), body=urlencode(fields).encode(), headers=given | kind
            )
            assert answer.status == 403
            assert [e["what"] for e in site.audit] == ["refused"]
            # The same from our own page is accepted.
            assert (await site.submit(preview)).status == 200

    asyncio.run(main())


def test_a_form_comes_through_a_proxy_that_asks_for_another_host(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            path = f"/create/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path), {"topic": "Orders"})
            fields = [
                (str(one["name"]), str(one["value"])) for one in preview.form().find_all("input")
            ]
            done = await site.post(path, fields, headers={"Origin": "https://console.example"})
            assert done.status == 200 and done.tables()[0][0][1] == "done"

    asyncio.run(main())


def test_a_form_needs_the_token_of_its_visitor(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            path = f"/create/{site.pair.broker.address}"
            other = site.browser()
            theirs = (await other.get(path)).form().find("input", attrs={"name": "csrf"})
            assert theirs is not None
            await site.get(path)
            for token in ("", "x" * 88, str(theirs["value"]), "ä"):
                answer = await site.post(path, {"topic": "Orders", "csrf": token})
                assert answer.status == 403, token
            tokens = set()
            for _ in range(3):  # it differs each time: compressed pages do not reveal it
                field = (await site.get(path)).form().find("input", attrs={"name": "csrf"})
                assert field is not None
                tokens.add(str(field["value"]))
            assert len(tokens) == 3

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", ""])
def test_programs_and_forms_say_what_they_send(console: Consoles, kind: str) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            path = f"/create/{site.pair.broker.address}"
            body = json.dumps({"topic": "Orders"}).encode()
            for url in (f"/c/test{path}", f"/api/v1/clusters/test{path}"):
                answer = await site.request(
                    "POST", url, body=body, headers={"Content-Type": kind, "Origin": site.origin}
                )
                assert answer.status == 415

    asyncio.run(main())


def test_what_is_too_large_is_refused(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            path = f"/create/{site.pair.broker.address}"
            page = await site.get(path)
            assert (await site.submit(page, {"topic": "x" * 1_100_000})).status == 413
            many = await site.submit(page, {"topic": ["x"] * 250})
            assert many.status == 400
            assert (await site.submit(page, {"topic": "x" * 101})).status == 400
            assert (await site.submit(page, {"topic": "x", "perm": "7"})).status == 400
            # Chunks do not state their total size.
            head = (
                f"POST /api/v1/clusters/test{path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n"
                "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            try:
                answer = await site.exchange(head.encode() + chunk * 20 + b"0\r\n\r\n")
            except ConnectionError:
                answer = b""
            assert b" 200 " not in answer.split(b"\r\n")[0]
            # A header without an end has a time limit.
            answer = await site.exchange(b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000)
            assert answer.startswith(b"HTTP/1.1 4")

    asyncio.run(main())


def test_more_requests_than_the_limit_are_turned_away(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "MOST_AT_ONCE", 0)

    async def main() -> None:
        async with console() as site:
            assert (await site.get("/")).status == 503
            assert site.console.shell.turned_away == 1
            assert site.console.shell.active == 0

    asyncio.run(main())


def test_what_fails_shows_an_id_and_no_more(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            for answer in (await site.get("/fails"), await site.api("/fails")):
                assert answer.status == 500
                assert "secret" not in answer.text and "Traceback" not in answer.text
                assert "RuntimeError" not in answer.text

    asyncio.run(main())


def test_only_trusted_proxies_say_who_asks(console: Consoles) -> None:
    async def main() -> None:
        forged = {"X-Forwarded-For": "10.9.9.9, 198.51.100.7, 127.0.0.1"}
        async with console(users={"ann": "reader"}) as site:
            site.headers = dict(forged)
            await site.log_in("ann", "wrong")
            assert site.audit[-1]["address"] == "127.0.0.1"
        trusted = {"trustedProxies": "127.0.0.1", "tlsAtProxy": "true"}
        async with console(trusted, users={"ann": "reader"}) as site:
            assert (await site.get("/login")).status == 403  # past the proxy, without TLS
            site.headers = forged | {"X-Forwarded-Proto": "https"}
            page = await site.get("/login")
            assert page.header("set-cookie").startswith("__Host-mq=")
            site.headers["Origin"] = f"https://127.0.0.1:{site.port}"
            form = page.form().find("input", attrs={"name": "csrf"})
            assert form is not None
            fields = {"csrf": str(form["value"]), "name": "ann", "password": "wrong"}
            await site.post("/login", fields, headers={"Origin": site.headers["Origin"]})
            # The nearest untrusted one: the client may have written the ones before it.
            assert site.audit[-1]["address"] == "198.51.100.7"

    asyncio.run(main())


def test_it_works_below_the_prefix_of_a_proxy(console: Consoles) -> None:
    async def main() -> None:
        async with console({"pathPrefix": "/mq"}, routes=ROUTES) as site:
            assert (await site.request("GET", "/c/test/")).status == 404
            first = await site.request("GET", "/mq/", follow=True)
            assert first.url == "/mq/c/test/"
            for element in first.soup.find_all(["a", "form", "link", "script"]):
                target = str(
                    element.get("href") or element.get("action") or element.get("src") or "/mq/"
                )
                assert target.startswith(("/mq/", "#")), element
            style = first.soup.find("link", rel="stylesheet")
            assert style is not None
            assert (await site.request("GET", str(style["href"]))).status == 200
            done = await site.change(f"/create/{site.pair.broker.address}", {"topic": "Orders"})
            assert done.tables()[0][0][1] == "done"

    asyncio.run(main())


def test_each_proxy_may_write_a_line_of_its_own(console: Consoles) -> None:
    async def main() -> None:
        settings = {"trustedProxies": "127.0.0.1;192.0.2.1"}
        async with console(settings, users={"ann": "reader"}) as site:
            lines = (
                f"GET / HTTP/1.1\r\nHost: {site.host}:{site.port}\r\nConnection: close\r\n"
                "X-Forwarded-For: 203.0.113.5\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
            )
            await site.exchange(lines.encode())
            assert site.audit[-1]["address"] == "203.0.113.5"

    asyncio.run(main())
