"""The administration port of TubeMQ's servers: small HTTP requests, answered with JSON.

Requests are methods by name, with parameters in the query or in a form; the daemon defines them
(`web_methods`). HTTP is served as far as curl, browsers and TubeMQ's own scripts need it: GET and
POST, bodies with a length, persistent connections. All memory for a client is limited, and idle
clients are disconnected. If there is no room for a new connection, the one that has sent no whole
request for longest is closed, so unfinished requests block no others.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from mq.daemons.accept import bind, bound_port, start_accepting, stop_accepting
from mq.daemons.time_slices import TimeSlices
from mq.daemons.tube.web_methods import Methods, Redirected, RequestRefused, WebRequest

log = logging.getLogger(__name__)

MAX_HEAD = 64 * 1024  # bytes of a request line and headers: GETs contain whole lists of offsets
MAX_BODY = 1024 * 1024  # of a form
MAX_FIELDS = 1000  # of a query or a form

# levels of an answer that are written in steps: of offsets, those of a topic are one piece
_LEVELS = 4

MAX_CONNECTIONS = 64
MAX_OF_HOST = 32  # connections of one address
REQUEST_SECONDS = 10.0  # for a whole request, from the connection or its first byte on
IDLE_SECONDS = 30.0  # between two requests, and for reading an answer


class BadRequest(Exception):
    """A request that is not served; the text is sent to the client, with the status."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def take_request(buffer: bytearray, peer: str) -> tuple[WebRequest, bool] | int:
    """Take a request from the start of the buffer, and return it with whether the connection stays.

    Return the needed number of bytes if it is incomplete. Raises BadRequest.
    """
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or end > MAX_HEAD:
        if len(buffer) > MAX_HEAD:
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers too long")
        return len(buffer) + 1
    first, *lines = buffer[:end].decode("latin-1").split("\r\n")
    try:
        verb, target, version = first.split(" ")
    except ValueError:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "no request line of HTTP") from None
    if not target.isprintable():  # it may become part of a header of the answer
        raise BadRequest(HTTPStatus.BAD_REQUEST, "control characters in the request line")
    if verb not in ("GET", "POST"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and POST")
    headers = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or name != name.strip():
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header is malformed")
        name = name.lower()
        if name == "content-length" and name in headers:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "two lengths of one body")
        headers[name] = text.strip()
    if "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.NOT_IMPLEMENTED, "bodies need a Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or len(length) > 9:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
    size = int(length)
    if size > MAX_BODY:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body too long")
    stop = end + 4 + size
    if len(buffer) < stop:
        return stop
    body = bytes(buffer[end + 4 : stop])
    del buffer[:stop]
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
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"malformed parameters: {error}") from None
    parameters: dict[str, str] = {}
    for name, value in found:  # the first value of a name counts, as in a servlet
        parameters.setdefault(name, value)
    from_other_page = headers.get("sec-fetch-site", "none").lower() not in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        from_other_page = True
    return WebRequest(parts.path, target, parameters, peer, verb, host, from_other_page)


def refusal(text: str, code: int = 400) -> bytes:
    """Return the answer to a refused request (WebParameterUtils.buildFailResult)."""
    return encoded(dump({"result": False, "errCode": code, "errMsg": text}))


def encoded(text: str) -> bytes:
    """Return JSON as bytes; a lone surrogate, which JSON may contain, as a JSON escape."""
    return text.encode(errors="backslashreplace")


def dump(value: Any) -> str:
    """Return JSON without blanks, as Java's servers write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


async def dumped(value: Any) -> str:
    """Return the same in steps: an answer may have a million rows."""
    steps, parts = TimeSlices(), []
    for part in _parts(value, _LEVELS):
        parts.append(part)
        await steps.rest()
    return "".join(parts)


def _parts(value: Any, levels: int) -> Iterator[str]:
    """Yield JSON in pieces: everything below these levels is one of them."""
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


class WebServer:
    """A port; each path has its methods. ``port`` is the actual one if 0 was given."""

    def __init__(self, host: str, port: int, paths: Mapping[str, Methods]) -> None:
        self.host = host
        self.port = port
        self.paths = paths
        self.connections: set[_Connection] = set()
        self.calls = 0
        self.failures = 0
        self._server: asyncio.Server | None = None
        self._one_long = asyncio.Lock()
        self.has_ended = False  # newly accepted connections are aborted

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError with the address if it is in use."""
        self._server = await bind(lambda: _Connection(self), self.host, self.port)
        await start_accepting(self._server)
        self.port = bound_port(self._server)
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
        await asyncio.sleep(0)  # the port is free after it
        await server.wait_closed()

    def has_room(self, host: str) -> bool:
        """Return whether a connection of an address may be added; a waiting one may be closed for
        it.
        """
        of_host = [one for one in self.connections if one.host == host]
        if len(of_host) >= MAX_OF_HOST:
            full = of_host
        elif len(self.connections) >= MAX_CONNECTIONS:
            full = list(self.connections)
        else:
            return True
        waiting = [one for one in full if one.task is None]
        if not waiting:
            return False
        min(waiting, key=lambda one: one.waits_since).evict()
        return True

    def turn(self, request: WebRequest) -> AbstractAsyncContextManager[None]:
        """Return a context for building an answer and sending it."""
        methods = self.paths.get(request.path)
        is_long = methods is not None and request.parameters.get("method") in methods.long
        return self._one_long if is_long else nullcontext()

    async def answer(self, request: WebRequest) -> tuple[HTTPStatus, bytes, dict[str, str]]:
        """Return status, body and further headers of an answer. Raises nothing."""
        methods = self.paths.get(request.path)
        if methods is None:
            return HTTPStatus.NOT_FOUND, refusal("Not found", 404), {}
        self.calls += 1
        try:
            result = await methods.call(request)
        except RequestRefused as refused:
            return HTTPStatus.OK, refusal(str(refused), refused.code), {}
        except Redirected as elsewhere:
            # A redirected form keeps its method only with 307.
            status = HTTPStatus.FOUND if request.verb == "GET" else HTTPStatus.TEMPORARY_REDIRECT
            return status, b"", {"Location": str(elsewhere)}
        except Exception as error:
            self.failures += 1
            log.exception("%s failed", request.parameters.get("method", "")[:100])
            return HTTPStatus.OK, refusal(f"Bad request from server: {error}"), {}
        text = result if isinstance(result, str) else await dumped(result)
        return HTTPStatus.OK, encoded(text), {}


class _Connection(asyncio.Protocol):
    """A client. Requests are answered one after the other, in order."""

    def __init__(self, server: WebServer) -> None:
        self._server = server
        self._transport: Any = None
        self._peer = ""
        self.host = ""
        self.waits_since = 0.0  # for a whole request, by the loop's clock
        self._has_begun = True  # a request, or the connection with its first one
        self._buffer = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._least = 0  # minimum size in bytes of the request that is arriving
        self._is_full = False  # the client has not read its answers
        self._taken: asyncio.Event = asyncio.Event()
        self._taken.set()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self._peer, self.host = f"{host}:{port}", host
        if self._server.has_ended or not self._server.has_room(host):
            transport.abort()
            return
        self._server.connections.add(self)
        self._wait(REQUEST_SECONDS)

    def connection_lost(self, _: Exception | None) -> None:
        self._server.connections.discard(self)
        self._stop_waiting()
        if self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self._transport.close()

    def evict(self) -> None:
        """Close at once, in favour of another connection."""
        self._server.connections.discard(self)  # the transport reports it only later
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self.task is None:
            if not self._has_begun:
                self._has_begun = True
                self._wait(REQUEST_SECONDS)
            self._next()
        elif len(self._buffer) > MAX_HEAD:  # a client that sends so far ahead does not read answers
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

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        loop = asyncio.get_running_loop()
        self.waits_since = loop.time()
        self._timer = loop.call_later(seconds, self._transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        """Begin the next request, if it is complete and the client reads its answers."""
        if self._transport.is_closing() or self._is_full or len(self._buffer) < self._least:
            return
        try:
            found = take_request(self._buffer, self._peer)
        except BadRequest as bad:
            self._write(bad.status, refusal(str(bad), bad.status), {}, stays=False)
            return
        if isinstance(found, int):
            self._least = found  # headers are parsed once, even if the body arrives in parts
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
                self._has_begun = False
                self._wait(IDLE_SECONDS)  # also for the client to read it
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
