"""The checks before a request is processed, and the headers of every response.

limits    a maximum number of requests and of bytes in a body; a request counts when its body is
          complete, so incomplete bodies block no others
proxies   X-Forwarded-For and -Proto are used from trusted addresses only
hosts     a foreign Host is refused: a site could resolve its name to the loopback address
path      stays quoted: a name within it may contain slashes
prefix    the path of the console at a proxy is removed
headers   tell browsers to load nothing from other sites, and to allow no frames and no caching
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect

from mq.client.machine import random_ids
from mq.daemons.acl.networks import is_in, parse_networks
from mq.daemons.console.config import ConsoleSettings

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_AT_ONCE = 100  # requests; streams have limits of their own
MOST_BODY = 1024 * 1024
# Bytes of incomplete bodies, per address and in total.
MOST_OF_ADDRESS = 8 * MOST_BODY
MOST_OF_ALL = 64 * MOST_BODY

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_NO_STORE = (b"cache-control", b"no-store")


class Shell:
    """The outermost layer of the console, around the frame."""

    def __init__(self, inner: Asgi, settings: ConsoleSettings) -> None:
        self._inner = inner
        config = settings.console
        self._prefix = config.path_prefix
        self._trusted = parse_networks(config.trusted_proxies, "trustedProxies")
        self._needs_tls = config.tls_at_proxy
        self._hosts = {"localhost", "127.0.0.1", "[::1]"}
        if config.bind_address not in ("0.0.0.0", "::"):
            own = config.bind_address.lower()
            self._hosts.add(f"[{own}]" if ":" in own else own)
        self._hosts |= {h.strip().lower() for h in config.allowed_hosts.split(";") if h.strip()}
        self.active = 0
        self._incoming: Counter[str] = Counter()  # bytes of incomplete bodies, by address
        self.requests = 0
        self.turned_away = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.requests += 1
        scope["mq.id"] = random_ids.random_bytes(6).hex()
        headers = {name.lower(): value for name, value in scope["headers"]}
        self._believe_proxy(scope, headers)
        sending = _with_headers(send, secure=scope["scheme"] == "https")
        if not self._is_ours(headers.get(b"host", b"")):
            await _answer(sending, 400, b"unknown host: see allowedHosts\n")
            return
        if self._needs_tls and scope["scheme"] != "https":
            await _answer(sending, 403, b"only through the proxy with TLS\n")
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MOST_BODY:
            await _drain(receive)
            await _answer(sending, 413, b"the body is larger than 1 MB\n")
            return
        scope["path"] = scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
        if self._prefix:
            if not _below(scope, self._prefix):
                await _answer(sending, 404, b"see pathPrefix\n")
                return
        try:
            body = await self._body(receive, (scope.get("client") or ("",))[0])
        except _Refused as refused:
            await _answer(sending, refused.status, refused.text)
            return
        if body is None:
            return
        if self.active >= MOST_AT_ONCE:
            self.turned_away += 1
            await _answer(sending, 503, b"too many requests at once\n")
            return
        await self._pass_on(scope, _given(body, receive), sending)

    async def _body(self, receive: Receive, address: str) -> bytes | None:
        """Return the whole body; None if the client disconnects first. Raises _Refused."""
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                part = message.get("body", b"")
                size += len(part)
                self._incoming[address] += len(part)
                if size > MOST_BODY:
                    raise _Refused(413, b"the body is larger than 1 MB\n")
                if self._incoming[address] > MOST_OF_ADDRESS or (
                    part and self._incoming.total() > MOST_OF_ALL
                ):
                    self.turned_away += 1
                    raise _Refused(503, b"too many bodies at once\n")
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._incoming[address] -= size
            if not self._incoming[address]:
                del self._incoming[address]

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        counted = True
        begun = False
        self.active += 1

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal counted, begun
            begun = True
            if counted and _is_stream(message):
                counted = False
                self.active -= 1
            await send(message)

        try:
            await self._inner(scope, receive, sending)
        except ClientDisconnect:
            pass  # no client reads a response
        except Exception as error:
            if begun and isinstance(error, ConnectionError):
                log.warning("request %s: the response is incomplete: %s", scope["mq.id"], error)
            else:
                log.error("request %s failed", scope["mq.id"], exc_info=True)
            if begun:
                # the client cannot know the rest of a partial response
                raise ConnectionAbortedError from None
            text = f"internal error: for details see the console's log, id {scope['mq.id']}\n"
            await _answer(send, 500, text.encode())
        finally:
            if counted:
                self.active -= 1

    def _is_ours(self, host: bytes) -> bool:
        name = host.decode("latin-1").lower()
        bare, colon, port = name.rpartition(":")
        if colon and port.isdigit() and (not bare.startswith("[") or bare.endswith("]")):
            name = bare
        return name in self._hosts

    def _believe_proxy(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Use the address and scheme that the nearest trusted proxies report."""
        client = scope.get("client")
        if client is None or not self._trusted or not is_in(client[0], self._trusted):
            return
        proto = headers.get(b"x-forwarded-proto", b"").decode("latin-1").strip().lower()
        if proto in ("http", "https"):
            scope["scheme"] = proto
        # From the right: each proxy appends the address of its client. The first untrusted one is
        # the client, who may have written everything to its left.
        # Each proxy may have added a header line of its own.
        lines = [v for n, v in scope["headers"] if n.lower() == b"x-forwarded-for"]
        told = b",".join(lines).decode("latin-1")
        for address in reversed([part.strip() for part in told.split(",") if part.strip()]):
            if len(address) > 45:
                return
            scope["client"] = (address, 0)
            if not is_in(address, self._trusted):
                return


class _Refused(Exception):
    """A body that is refused."""

    def __init__(self, status: int, text: bytes) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def _given(body: bytes, receive: Receive) -> Receive:
    """Return a receive function for the received body and all later messages."""
    is_given = False

    async def given() -> MutableMapping[str, Any]:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return given


def _below(scope: Scope, prefix: str) -> bool:
    """Remove the prefix from the path; return False if the path does not have it."""
    path = scope["path"]
    if path != prefix and not path.startswith(prefix + "/"):
        return False
    scope["mq.path"] = path
    scope["path"] = path.removeprefix(prefix) or "/"
    return True


def _is_stream(message: MutableMapping[str, Any]) -> bool:
    return message["type"] == "http.response.start" and any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message["headers"]
    )


def _with_headers(send: Send, *, secure: bool) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append(_NO_STORE)
            headers += HEADERS
            if secure:
                headers.append((b"strict-transport-security", b"max-age=31536000"))
            message = {**message, "headers": headers}
        await send(message)

    return sending


async def _drain(receive: Receive) -> None:
    """Read the remaining body within a limit, or the connection closes before the response."""
    left = 4 * MOST_BODY
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if not message.get("more_body", False):
            return


async def _answer(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
