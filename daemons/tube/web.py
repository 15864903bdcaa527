"""The administration port of TubeMQ's servers: small requests by HTTP, answered with JSON.

Requests are methods by name, with parameters in the query or in a form; what they do is the
daemon's (`Methods`). HTTP is served as far as curl, browsers and TubeMQ's own scripts need it:
GET and POST, bodies with a length, connections that stay open. Everything a peer may make us hold
has a limit, and a peer that sends nothing is closed.

GET changes things, as TubeMQ's scripts have it. So could anybody's page in the browser of an
administrator, where the token is known or none is asked for, which is so on loopback by default.
Browsers say when another site's page asks: that changes nothing. And while the token is no secret,
only who calls the server by a name or an address of loopback is answered: a page may have made its
own name lead there.
"""

import asyncio
import errno
import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from mq.daemons.accepting import stop_accepting
from mq.daemons.acl.networks import is_loopback
from mq.daemons.steps import Steps

log = logging.getLogger(__name__)

MAX_HEAD = 64 * 1024  # bytes of a request line and headers: GETs carry whole lists of offsets
MAX_BODY = 1024 * 1024  # of a form
MAX_FIELDS = 1000  # of a query or a form
MAX_CONNECTIONS = 64
#: What the original has where its file says nothing, and what its sample file has: no secrets.
KNOWN_TOKENS = frozenset({"ASDFGHJKL", "abc"})
_LEVELS = 4  # of an answer that are written in steps: of offsets, those of a topic are one piece
IDLE_SECONDS = 30.0  # that a peer may take for a whole request, and between two

#: What a method answers: JSON, or text that is JSON already, as Java's servers write it.
Result = Mapping[str, Any] | str


class RequestRefused(Exception):
    """A parameter is not what it must be. The text goes to the caller, with code 400 unless given.

    TubeMQ answers such with status 200 and `"result":false` (WebParameterUtils.buildFailResult).
    """

    def __init__(self, text: str, code: int = 400) -> None:
        super().__init__(text)
        self.code = code


class Redirected(Exception):
    """Another server answers this: a standby master names the active one. The text is its URL."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A call of a method: its parameters, by name, and who asks (`host:port`)."""

    path: str
    target: str  # path and query as they came, for redirections
    parameters: Mapping[str, str]
    peer: str
    verb: str = "GET"
    host: str = ""  # as who asks calls this server, with a port or without
    from_other_page: bool = False  # a browser says that a page of another site asks

    def get(self, *names: str) -> str:
        """The parameter by the first of its names that is there, without blanks around; or ""."""
        for name in names:
            if text := self.parameters.get(name, "").strip():
                return text
        return ""

    def need(self, *names: str) -> str:
        """The same of one that has to be there. Raises RequestRefused."""
        if text := self.get(*names):
            return text
        raise RequestRefused(f"Parameter {names[0]} is missing or value is null or blank!")

    def items(self, *names: str) -> list[str]:
        """A list, `a,b`; each item once, in order."""
        text = self.get(*names)
        return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))

    def number(self, *names: str, default: int | None = None) -> int:
        """A number; without a default it has to be there. Raises RequestRefused."""
        text = self.need(*names) if default is None else self.get(*names)
        if not text:
            assert default is not None
            return default
        try:
            return int(text)
        except ValueError:
            raise RequestRefused(
                f"Parameter {names[0]} parse error: {text[:100]} is no number"
            ) from None

    def flag(self, *names: str, default: bool | None = None) -> bool:
        """true, or false for any other text, as Boolean.parseBoolean of Java has it."""
        text = self.need(*names) if default is None else self.get(*names)
        return default if not text and default is not None else text.lower() == "true"


Method = Callable[[WebRequest], Result | Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Methods:
    """What one path offers, by name. Those in ``changing`` need the token (`confModAuthToken`).

    ``token`` "" refuses all of those, None asks for none. ``before`` may raise Redirected or
    RequestRefused. Of those in ``long``, whose answers may be very large, a server has one at a
    time in memory: until its peer has taken it, or is closed for taking nothing.
    """

    by_name: Mapping[str, Method]
    changing: frozenset[str] = frozenset()
    token: str | None = ""
    before: Callable[[WebRequest], None] = field(default=lambda _: None)
    long: frozenset[str] = frozenset()

    async def call(self, request: WebRequest) -> Result:
        """What a request is answered. Raises RequestRefused and Redirected."""
        name = request.parameters.get("method")
        if name is None:
            raise RequestRefused("Please take with method parameter! ")
        method = self.by_name.get(name)
        if method is None:
            raise RequestRefused(f"Unsupported method {name[:100]}")
        if (self.token is None or self.token in KNOWN_TOKENS) and not _is_loopback(request.host):
            raise RequestRefused(
                f"{request.host[:100]}: ask this server by its address, or set a confModAuthToken "
                "that nobody else knows",
                403,
            )
        self.before(request)
        if name in self.changing:
            if request.from_other_page:
                raise RequestRefused("a page of another site cannot change anything here", 403)
            if not self._knows_token(request):
                raise RequestRefused("Illegal visit: wrong confModAuthToken value!")
        result = method(request)
        return result if isinstance(result, str | Mapping) else await result

    def _knows_token(self, request: WebRequest) -> bool:
        if self.token is None:
            return True
        given = request.get("confModAuthToken", "authToken").encode()
        return bool(self.token) and hmac.compare_digest(given, self.token.encode())


class WebServer:
    """A port; each path has its methods. ``port`` is the one bound, also where 0 was asked for."""

    def __init__(self, host: str, port: int, paths: Mapping[str, Methods]) -> None:
        self.host = host
        self.port = port
        self.paths = paths
        self.connections: set[_Connection] = set()
        self.calls = 0
        self.failures = 0
        self._server: asyncio.Server | None = None
        self._one_long = asyncio.Lock()
        self.has_ended = False  # what has been accepted and comes now is broken off

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError naming an address that is taken."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Connection(self), self.host, self.port)
        except OSError as error:
            why = str(error.strerror or error)
            if error.errno == errno.EADDRINUSE:  # the loop's own text says the address once more
                why = "another process does already"
            raise OSError(error.errno, f"cannot listen on {self.host}:{self.port}: {why}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is None:
            return
        server, self._server, self.has_ended = self._server, None, True
        stop_accepting(server)
        tasks = [one.task for one in self.connections if one.task is not None]
        for connection in list(self.connections):
            connection.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the port is free behind it
        await server.wait_closed()

    def turn(self, request: WebRequest) -> AbstractAsyncContextManager[None]:
        """`async with` around making an answer, and having it taken."""
        methods = self.paths.get(request.path)
        is_long = methods is not None and request.parameters.get("method") in methods.long
        return self._one_long if is_long else nullcontext()

    async def answer(self, request: WebRequest) -> tuple[HTTPStatus, bytes, dict[str, str]]:
        """Status, body and further headers of an answer. Raises nothing."""
        methods = self.paths.get(request.path)
        if methods is None:
            return HTTPStatus.NOT_FOUND, refusal("Not found", 404), {}
        self.calls += 1
        try:
            result = await methods.call(request)
        except RequestRefused as refused:
            return HTTPStatus.OK, refusal(str(refused), refused.code), {}
        except Redirected as elsewhere:
            # A form goes on to there only with 307.
            status = HTTPStatus.FOUND if request.verb == "GET" else HTTPStatus.TEMPORARY_REDIRECT
            return status, b"", {"Location": str(elsewhere)}
        except Exception as error:
            self.failures += 1
            log.exception("%s failed", request.parameters.get("method", "")[:100])
            return HTTPStatus.OK, refusal(f"Bad request from server: {error}"), {}
        text = result if isinstance(result, str) else await _dumped(result)
        return HTTPStatus.OK, _encoded(text), {}


def refusal(text: str, code: int = 400) -> bytes:
    return _encoded(dump({"result": False, "errCode": code, "errMsg": text}))


def _encoded(text: str) -> bytes:
    """JSON as bytes; a half of a surrogate pair, which JSON may have, as JSON escapes it."""
    return text.encode(errors="backslashreplace")


def dump(value: Any) -> str:
    """JSON without blanks, as Java's servers write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def _dumped(value: Any) -> str:
    """The same in steps: an answer may have a million rows."""
    steps, parts = Steps(), []
    for part in _parts(value, _LEVELS):
        parts.append(part)
        await steps.rest()
    return "".join(parts)


def _parts(value: Any, levels: int) -> Iterator[str]:
    """JSON in pieces: what is below so many levels is one of them."""
    if not levels or not isinstance(value, list | Mapping):
        yield dump(value)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield "," if number else "["
            yield from _parts(item, levels - 1)
        yield "]" if value else "[]"
    else:
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{dump(str(name))}:"
            yield from _parts(item, levels - 1)
        yield "}" if value else "{}"


class _BadRequest(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Connection(asyncio.Protocol):
    """A peer. Requests are answered one after the other, in order."""

    def __init__(self, server: WebServer) -> None:
        self._server = server
        self._transport: Any = None
        self._peer = ""
        self._buffer = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._least = 0  # bytes that a request has that has begun to come
        self._is_full = False  # the peer has not taken its answers
        self._taken: asyncio.Event = asyncio.Event()
        self._taken.set()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self._peer = f"{host}:{port}"
        if self._server.has_ended or len(self._server.connections) >= MAX_CONNECTIONS:
            transport.abort()
            return
        self._server.connections.add(self)
        self._wait()

    def connection_lost(self, _: Exception | None) -> None:
        self._server.connections.discard(self)
        self._stop_waiting()
        if self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self.task is None:
            self._next()
        elif len(self._buffer) > MAX_HEAD:  # who sends ahead so far reads no answers
            self._transport.abort()

    def pause_writing(self) -> None:
        self._is_full = True
        self._taken.clear()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._taken.set()
        self._transport.resume_reading()
        if self.task is None:
            self._next()

    def _wait(self) -> None:
        self._stop_waiting()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(IDLE_SECONDS, self._transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        """Begin the next request, if all of it is there and the peer takes its answers."""
        if self._transport.is_closing() or self._is_full or len(self._buffer) < self._least:
            return
        try:
            found = _take_request(self._buffer, self._peer)
        except _BadRequest as bad:
            self._write(bad.status, refusal(str(bad), bad.status), {}, stays=False)
            return
        if isinstance(found, int):
            self._least = found  # headers are read once, however their body comes
            return
        self._least = 0
        request, stays = found
        self._stop_waiting()
        self.task = asyncio.get_running_loop().create_task(self._answer(request, stays))

    async def _answer(self, request: WebRequest, stays: bool) -> None:
        async with self._server.turn(request):
            status, body, headers = await self._server.answer(request)
            if not self._transport.is_closing():
                self._write(status, body, headers, stays)
                self._wait()  # also for the peer to take it
                del body
                await self._taken.wait()
        self.task = None
        if stays:
            self._next()

    def _write(
        self, status: HTTPStatus, body: bytes, headers: Mapping[str, str], stays: bool
    ) -> None:
        head = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            "Content-Type: application/json;charset=UTF-8",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            f"Connection: {'keep-alive' if stays else 'close'}",
            *(f"{name}: {text}" for name, text in headers.items()),
        ]
        self._transport.write("\r\n".join((*head, "", "")).encode("latin-1", "replace") + body)
        if not stays:
            self._transport.close()


def _take_request(buffer: bytearray, peer: str) -> tuple[WebRequest, bool] | int:
    """Take a request off the front of what has come; how many bytes there have to be if it is not
    all there.

    Also whether the connection stays. Raises _BadRequest.
    """
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or end > MAX_HEAD:
        if len(buffer) > MAX_HEAD:
            raise _BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers too long")
        return len(buffer) + 1
    first, *lines = buffer[:end].decode("latin-1").split("\r\n")
    try:
        verb, target, version = first.split(" ")
    except ValueError:
        raise _BadRequest(HTTPStatus.BAD_REQUEST, "no request line of HTTP") from None
    if not target.isprintable():  # it may go into a header of the answer
        raise _BadRequest(HTTPStatus.BAD_REQUEST, "control characters in the request line")
    if verb not in ("GET", "POST"):
        raise _BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and POST")
    headers = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or name != name.strip():
            raise _BadRequest(HTTPStatus.BAD_REQUEST, "a header is malformed")
        name = name.lower()
        if name == "content-length" and name in headers:
            raise _BadRequest(HTTPStatus.BAD_REQUEST, "two lengths of one body")
        headers[name] = text.strip()
    if "transfer-encoding" in headers:
        raise _BadRequest(HTTPStatus.NOT_IMPLEMENTED, "bodies need a Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or len(length) > 9:
        raise _BadRequest(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
    size = int(length)
    if size > MAX_BODY:
        raise _BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body too long")
    behind = end + 4 + size
    if len(buffer) < behind:
        return behind
    body = bytes(buffer[end + 4 : behind])
    del buffer[:behind]
    connection = headers.get("connection", "").lower()
    stays = connection != "close" and (version == "HTTP/1.1" or connection == "keep-alive")
    return _request(verb, target, headers, body, peer), stays


def _request(
    verb: str, target: str, headers: Mapping[str, str], body: bytes, peer: str
) -> WebRequest:
    content_type, host = headers.get("content-type", ""), headers.get("host", "")
    try:
        parts = urlsplit(target)
        found = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        if body and content_type.partition(";")[0].strip() in (
            "",
            "application/x-www-form-urlencoded",
        ):
            text = body.decode("utf-8")
            found += parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise _BadRequest(HTTPStatus.BAD_REQUEST, f"malformed parameters: {error}") from None
    parameters: dict[str, str] = {}
    for name, value in found:  # the first of a name counts, as in a servlet
        parameters.setdefault(name, value)
    from_other_page = headers.get("sec-fetch-site", "none").lower() not in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        from_other_page = True
    return WebRequest(parts.path, target, parameters, peer, verb, host, from_other_page)


def _is_loopback(host: str) -> bool:
    """Whether a Host header names this machine, or nothing."""
    name = host.strip().removeprefix("[").partition("]")[0] if "]" in host else host.split(":")[0]
    return not name or is_loopback(name.lower())
