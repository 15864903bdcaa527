"""A real console on port 0, with a name server and a broker, and a browser without script."""

import asyncio
import functools
import gzip
import json
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

import pytest
from argon2 import PasswordHasher
from bs4 import BeautifulSoup, Tag

from mq.client.credentials import AccessKey
from mq.client.options import ClientOptions
from mq.daemons.console import pages
from mq.daemons.console.app import Console
from mq.daemons.console.clusters import Cluster, ClusterSource
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.route import AnyRoute
from mq.daemons.console.security import accounts
from mq.daemons.console.security.accounts import Account
from mq.daemons.standalone import Standalone

CLUSTER = "test"
PASSWORD = "correct horse battery"


def settings_of(folder: Path, more: Mapping[str, str] = {}) -> ConsoleSettings:
    """Limits for a console on a machine that is busy with other tests, longer than for users."""
    patient = {"requestTimeoutMillis": "30000", "pageTimeoutMillis": "60000"}
    return ConsoleSettings.load(
        None, {"listenPort": "0", "dataPath": str(folder), **patient, **more}
    )


@dataclass
class Answer:
    """A response of a console."""

    url: str  # requested path and query
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        """The last header of this name, or an empty text."""
        return next((v for n, v in reversed(self.headers) if n == name.lower()), "")

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def soup(self) -> BeautifulSoup:
        """The page, parsed."""
        return BeautifulSoup(self.body, "html.parser")

    @property
    def title(self) -> str:
        heading = self.soup.h1
        return heading.get_text(strip=True) if heading else ""

    def tables(self) -> list[list[list[str]]]:
        """The texts of each table's cells, row by row, without its head."""
        return [
            [
                [cell.get_text(" ", strip=True) for cell in row.find_all(["th", "td"])]
                for row in body.find_all("tr")
            ]
            for body in self.soup.find_all("tbody")
        ]

    def form(self, action: str = "", method: str = "post") -> Tag:
        """Return the first form of <main>, or the first with this start of the action."""
        main = self.soup.main or self.soup
        for found in main.find_all("form"):
            assert isinstance(found, Tag)
            if str(found.get("method", "get")) == method and str(found.get("action")).startswith(
                action
            ):
                return found
        raise AssertionError(f"{self.url} ({self.status}) has no such form:\n{self.text[:3000]}")


def fields_of(form: Tag) -> list[tuple[str, str]]:
    """Return the fields that a browser would send of an unchanged form, without its buttons."""
    found = []
    for one in form.find_all(["input", "textarea", "select"]):
        name = one.get("name")
        if not name:
            continue
        if one.name == "textarea":
            found.append((str(name), one.get_text().removeprefix("\n")))
        elif one.name == "select":
            options = one.find_all("option")
            chosen = [o for o in options if o.has_attr("selected")] or options[:1]
            found += [(str(name), str(o.get("value", o.get_text()))) for o in chosen]
        elif one.get("type") not in ("checkbox", "radio") or one.has_attr("checked"):
            found.append((str(name), str(one.get("value", ""))))
    return found


@dataclass
class Browser:
    """A client like a browser without script: it keeps cookies, and follows no redirects."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    prefix: str = ""
    cookies: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cluster: str = CLUSTER

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        follow: bool = False,
    ) -> Answer:
        """Request an address of the console, such as "/c/test/topics"."""
        given = {"Host": f"{self.host}:{self.port}", "Accept-Encoding": "gzip"}
        given |= self.headers
        if self.cookies:
            given["Cookie"] = "; ".join(f"{n}={v}" for n, v in self.cookies.items())
        if body or method == "POST":
            given["Content-Length"] = str(len(body))
        given |= headers or {}
        given["Connection"] = "close"
        lines = [f"{method} {url} HTTP/1.1", *(f"{n}: {v}" for n, v in given.items()), "", ""]
        raw = await self.exchange("\r\n".join(lines).encode("latin-1") + body)
        answer = parsed(url, raw)
        self._keep_cookies(answer)
        if follow and answer.status == 303:
            target = urlsplit(urljoin(url, answer.header("location")))
            path = target.path + (f"?{target.query}" if target.query else "")
            return await self.request("GET", path, follow=True)
        return answer

    async def exchange(self, raw: bytes) -> bytes:
        """Send bytes, and return all received ones until the other side closes."""
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
        try:
            writer.write(raw)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()

    def _keep_cookies(self, answer: Answer) -> None:
        for name, value in answer.headers:
            if name == "set-cookie":
                for key, morsel in SimpleCookie(value).items():
                    if morsel["max-age"] == "0":
                        self.cookies.pop(key, None)
                    else:
                        self.cookies[key] = morsel.value

    def of_cluster(self, path: str) -> str:
        """Return the address of a path of the cluster; "/c/…" and such are unchanged."""
        if path.startswith(("/c/", "/api/", "/login", "/logout", "/static", "/preferences")):
            return self.prefix + path
        return f"{self.prefix}/c/{self.cluster}{path}"

    async def get(self, path: str, *, follow: bool = False, **headers: str) -> Answer:
        """Request a page: "/topics" of the cluster, or a whole path such as "/c/other/"."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request("GET", self.of_cluster(path), headers=given, follow=follow)

    async def post(
        self,
        path: str,
        fields: Sequence[tuple[str, str]] | Mapping[str, str],
        *,
        headers: Mapping[str, str] | None = None,
        follow: bool = True,
    ) -> Answer:
        """Send a form of a console's page. The token must be among the fields."""
        pairs = list(fields.items()) if isinstance(fields, Mapping) else list(fields)
        given = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": self.origin,
            "Sec-Fetch-Site": "same-origin",
        }
        return await self.request(
            "POST",
            self.of_cluster(path),
            body=urlencode(pairs).encode(),
            headers=given | dict(headers or {}),
            follow=follow,
        )

    async def submit(
        self, page: Answer, fields: Mapping[str, Any] | None = None, *, action: str = ""
    ) -> Answer:
        """Fill in the form of a page and send it. A value of None omits a field, a list or tuple
        sends it several times.
        """
        form = page.form(action)
        pairs = [(n, v) for n, v in fields_of(form) if n not in (fields or {})]
        for name, value in (fields or {}).items():
            if value is None:
                continue
            values = value if isinstance(value, list | tuple) else [value]
            pairs += [(name, str(one)) for one in values]
        return await self.post(str(form["action"]).removeprefix(self.prefix), pairs)

    async def change(
        self, path: str, fields: Mapping[str, Any] | None = None, *, typed: str = ""
    ) -> Answer:
        """Make a change with its form, its preview and its confirmation; return the results."""
        preview = await self.submit(await self.get(path), fields)
        assert preview.status == 200, preview.text
        return await self.submit(preview, {"typed": typed} if typed else {})

    async def api(
        self, path: str, given: Any = None, *, token: str = "", method: str = ""
    ) -> Answer:
        """Request the same route for programs."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if given is not None:
            headers["Content-Type"] = "application/json"
        url = path if path.startswith("/api/") else f"/api/v1/clusters/{self.cluster}{path}"
        return await self.request(
            method or ("GET" if given is None else "POST"),
            self.prefix + url,
            body=b"" if given is None else json.dumps(given).encode(),
            headers=headers,
        )

    async def log_in(self, name: str, password: str = PASSWORD, *, wanted: str = "") -> Answer:
        """Log in with the form; return the next page."""
        page = await self.get("/login" + (f"?next={quote(wanted, safe='')}" if wanted else ""))
        return await self.submit(page, {"name": name, "password": password})

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator["EventReader"]:
        """Follow a stream of the cluster."""
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
        lines = [f"GET {self.of_cluster(path)} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        if self.cookies:
            lines.append("Cookie: " + "; ".join(f"{n}={v}" for n, v in self.cookies.items()))
        writer.write("\r\n".join([*lines, "", ""]).encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            yield EventReader(int(head.split()[1]), reader)
        finally:
            writer.close()


class EventReader:
    """Reads the events of a stream, whose parts come in chunks of HTTP."""

    def __init__(self, status: int, reader: asyncio.StreamReader) -> None:
        self.status = status
        self._reader = reader
        self._kept = b""

    async def next(self) -> tuple[str, Any]:
        """Name and data of the next event. Raises EOFError at the end."""
        while True:
            while b"\n\n" not in self._kept:
                size = int((await self._reader.readline()).strip() or b"0", 16)
                if size == 0:
                    raise EOFError
                self._kept += await self._reader.readexactly(size)
                await self._reader.readexactly(2)
            block, self._kept = self._kept.split(b"\n\n", 1)
            found = dict(
                line.split(": ", 1) for line in block.decode().splitlines() if ": " in line
            )
            if "event" in found:
                return found["event"], json.loads(found["data"])


def parsed(url: str, raw: bytes) -> Answer:
    """A response of HTTP/1.1 whose connection was closed after it."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines)]
    answer = Answer(url, int(status.split()[1]), headers, body)
    if answer.header("transfer-encoding") == "chunked":
        chunks = []
        while body:
            size, _, body = body.partition(b"\r\n")
            length = int(size, 16)
            chunks.append(body[:length])
            body = body[length + 2 :]
        answer.body = b"".join(chunks)
    if answer.header("content-encoding") == "gzip":
        answer.body = gzip.decompress(answer.body)
    return answer


@dataclass
class Site(Browser):
    """A console with its cluster, and a browser for it."""

    console: Console = field(kw_only=True)
    pair: Standalone = field(kw_only=True)

    @property
    def here(self) -> Cluster:
        """The console's object of the cluster."""
        return self.console.clusters[self.cluster]

    def browser(self) -> Browser:
        """Another browser at the same console."""
        return Browser(self.host, self.port, self.tls, self.prefix)

    @property
    def audit(self) -> list[dict[str, Any]]:
        """The lines of the audit."""
        path = self.console.settings.console.audit_path
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Consoles:
    """Starts consoles with data in a folder of the test: `async with console() as site:`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @asynccontextmanager
    async def __call__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        broker: Mapping[str, str] | None = None,
        clusters: Sequence[str] = (CLUSTER,),
        read_only: Sequence[str] = (),
        pair: Standalone | None = None,
        routes: tuple[AnyRoute, ...] = (),
        users: Mapping[str, str | Account] | None = None,
        login: str = "",
        credentials: AccessKey | None = None,
    ) -> AsyncIterator[Site]:
        """Start a console, by default with its own name server and broker.

        ``settings`` are the console's, ``broker`` the broker's. Each name in ``clusters`` is the
        same pair; those in ``read_only`` are not changed. ``routes`` are pages of the test.
        ``users`` are accounts by their names, with a role or more; all have `PASSWORD`. With
        ``login`` the browser is that user's. With ``credentials`` it signs its requests to brokers.
        """
        async with AsyncExitStack() as parts:
            if pair is None:
                pair = await parts.enter_async_context(
                    Standalone(name_server_port=0, broker_port=0, properties=broker)
                )
            found = settings_of(self.folder / "console", settings or {})
            sources = [
                ClusterSource(
                    name,
                    pair.name_server_address,
                    ClientOptions(timeout=10.0, credentials=credentials),
                    found.console.read_only or name in read_only,
                )
                for name in clusters
            ]
            for name, account in (users or {}).items():
                add_user(found.console.users_path, name, account)
            console = await parts.enter_async_context(Console(found, sources, routes=routes))
            tls = None
            if found.tls.has_certificate:
                tls = ssl.create_default_context()
                tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
            site = Site(
                "127.0.0.1",
                console.port,
                prefix=found.console.path_prefix,
                cluster=clusters[0],
                tls=tls,
                console=console,
                pair=pair,
            )
            if login:
                assert (await site.log_in(login)).status == 200
            yield site


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the time limit of pages for a busy machine; tests of the limit set their own."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{pages.__name__}.") and hasattr(module, "DEADLINE"):
            monkeypatch.setattr(module, "DEADLINE", 30.0)


@functools.cache
def hashed() -> str:
    """Return a cheap hash of `PASSWORD`, which contains its own cost.

    `cli/commands/test_console_accounts.py` tests hashes with the console's cost.
    """
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)


def account(name: str, role: str = "administrator", **more: Any) -> Account:
    """Return an account with `PASSWORD`; ``more`` are fields of it."""
    return Account(name, hashed(), **{"roles": {"*": role}, **more})


def add_user(path: Path, name: str, given: str | Account) -> None:
    """Put an account into the file, with a role or unchanged."""
    with accounts.changing(path) as found:
        found.users[name] = account(name, given) if isinstance(given, str) else given
