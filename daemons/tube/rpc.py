"""The port of a TubeMQ server: connections, requests, and the table of handlers.

A handler is called once per complete request, without a task. It answers at once with its return
value, or later with its `Call`; a coroutine runs as a task. One write per turn of the loop sends
all answers of a connection.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from google.protobuf.message import Message

from mq.client.machine import clock
from mq.client.transport.tasks import end_with
from mq.daemons.listening_port import ListeningPort
from mq.daemons.memory import MemoryBudget
from mq.daemons.tls import FirstByte, OnlyTls
from mq.daemons.tube.calls import MAX_BODY, MAX_SEND, Answer, Call, Handler, Route, ServiceFailure
from mq.daemons.tube.channel import RpcChannel
from mq.protocol.tube.codes import SERVICES, Method, Service
from mq.protocol.tube.errors import IllegalName, MalformedRpc, MalformedText
from mq.protocol.tube.frame import MAX_CHUNKS
from mq.protocol.tube.messages import parse
from mq.protocol.tube.rpc import ERROR, FATAL, Request, decode_request, encode_failure

__all__ = [
    "MAX_BODY",
    "MAX_SEND",
    "Answer",
    "Call",
    "Handler",
    "Route",
    "RpcListener",
    "ServiceFailure",
]

log = logging.getLogger(__name__)

# The limit for a request without a client's timeout.
DEFAULT_TIMEOUT_MS = 10_000

# Texts of the original: NettyRpcServer.channelRead, PbEnDecoder, RpcProtocol.handleRequest.
_UNREADABLE = "IPC server unable to read call parameters:"
_UNHANDLED = "IPC server handle request error :"
_EXCEPTION = "java.lang.Exception"
_INVALID_MESSAGE = "com.google.protobuf.InvalidProtocolBufferException"


def _services(method: Method) -> tuple[Service, ...]:
    """Return the services of a method. The Go client uses the service for reading messages, and the
    original accepts it (PbEnDecoder.isValidServiceTypeAndMethod)."""
    if method is Method.SEND_MESSAGE_P2B:
        return Service.BROKER_WRITE, Service.BROKER_READ
    return (SERVICES[method],)


class RpcListener(ListeningPort[RpcChannel]):
    """A port, and its table of handlers.

    Args:
        routes: the handlers by method. idle_seconds: clients send heartbeats each 10 to 60 s.
        max_connections, held_files: see ListeningPort. max_chunks: of a frame.

    `requests` has the number of requests, by method; `counters` the numbers of events: "requests",
    "broken_frames", "malformed_requests", "unknown_methods", "expired_requests",
    "handler_failures", "refused_connections".
    """

    def __init__(
        self,
        routes: Mapping[Method, Route],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        idle_seconds: float = 300,
        max_connections: Callable[[], int] = lambda: 0,
        held_files: Callable[[], int] = lambda: 0,
        max_chunks: int = MAX_CHUNKS,
        memory: MemoryBudget | None = None,
        backlog: int = 1024,
    ) -> None:
        self.routes = routes
        super().__init__(
            host,
            port,
            idle_seconds=idle_seconds,
            backlog=backlog,
            memory=memory,
            max_connections=max_connections,
            held_files=held_files,
        )
        self.max_chunks = max_chunks
        self.counters: Counter[str] = Counter()
        # By method; -1: unknown ones.
        self.requests: dict[int, int] = dict.fromkeys((-1, *_METHODS), 0)
        self.stopping = False  # every request is answered with "service is stopping"
        self._tls = None if tls is None else OnlyTls(tls)
        self._tasks: set[asyncio.Task[None]] = set()
        self.now: Callable[[], float] = clock.monotonic  # until a loop exists

    @property
    def routes(self) -> Mapping[Method, Route]:
        """The handlers by method; the table may be replaced at any time."""
        return self._routes

    @routes.setter
    def routes(self, routes: Mapping[Method, Route]) -> None:
        self._routes = dict(routes)
        self._found = {
            (int(service), int(method)): route
            for method, route in routes.items()
            for service in _services(method)
        }

    def count(self, what: str) -> None:
        self.counters[what] += 1

    async def bind(self) -> None:
        await super().bind()
        self.now = asyncio.get_running_loop().time

    def _admit(self) -> asyncio.Protocol:
        most = self._limit_reached()
        if most:
            self.count("refused_connections")
            log.warning("a connection is refused: the limit of %d is reached", most)
            return _RejectedConnection()
        channel = RpcChannel(self)
        return channel if self._tls is None else FirstByte(channel, self._tls)

    def serve(self, channel: RpcChannel, serial: int, payload: bytes, came: float) -> None:
        """Have the request of a frame answered. For the channels of this port."""
        try:
            request = decode_request(serial, payload)
        except MalformedRpc as error:
            self.count("malformed_requests")
            text = f"{_UNREADABLE}{error}"
            channel.send(encode_failure(serial, FATAL, _INVALID_MESSAGE, text, error.version))
            return
        method, body = request.method, request.body
        # No lookups by IntEnum here: its hash is a Python function.
        counts = self.requests
        counts[method if method in counts else -1] += 1
        self.counters["requests"] += 1
        deadline = came + (request.timeout_ms or DEFAULT_TIMEOUT_MS) / 1000
        channel.begin(len(body))
        call = Call(channel, request, deadline)
        if self.now() >= deadline:
            call.answer_frame(b"")  # counted, and not sent
            return
        try:
            route = self._found.get((request.service, method))
            if route is None or self.stopping:
                route = self._route(request)
            if len(body) > route.limit:
                raise MalformedRpc(f"{len(body)} bytes: {route.limit} are allowed")
            if route.kind is not None:
                call.message = parse(route.kind, body)
        except MalformedRpc as error:
            self._malformed(call, error)
            return
        except _Unknown as unknown:
            self.count("unknown_methods")
            call.fail(_EXCEPTION, str(unknown), unknown.status)
            return
        except ServiceFailure as failure:
            call.fail(failure.exception, failure.text)
            return
        self._handle(route, call)

    def _route(self, request: Request) -> Route:
        """Return the route. Raises _Unknown, with the original's texts, and ServiceFailure at the
        stop.
        """
        method = request.method
        if method not in _METHODS:
            raise _Unknown(FATAL, f"{_UNHANDLED}Unsupported method ID :{method}")
        if self.stopping:
            raise ServiceFailure("ServiceStoppingException", "service is stopping...")
        if request.service not in (Service.MASTER, Service.BROKER_READ, Service.BROKER_WRITE):
            raise _Unknown(ERROR, "Service Type is invalid!")
        if request.service not in _services(Method(method)):
            text = f"Unsupported method {method}in service type {request.service}!"
            raise _Unknown(ERROR, text)
        route = self._found.get((request.service, method))
        if route is None:
            raise _Unknown(ERROR, f"No service {request.service} found on the server")
        return route

    def _handle(self, route: Route, call: Call) -> None:
        try:
            answer = route.handle(call)
        except Exception as error:
            self._failed(call, error)
            return
        if isinstance(answer, bytes | Message):
            self._answer(call, answer)
        elif answer is not None:
            task = asyncio.ensure_future(self._answer_later(call, answer))
            self._tasks.add(task)
            task.add_done_callback(lambda task: self._answered(task, call))
            end_with(task, answer)

    async def _answer_later(self, call: Call, answer: Awaitable[Answer]) -> None:
        try:
            self._answer(call, await answer)
        except Exception as error:
            self._failed(call, error)

    def _answered(self, task: asyncio.Task[None], call: Call) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # also before its first step
            call.fail("ServiceStoppingException", "service is stopping...")

    def _answer(self, call: Call, answer: Answer) -> None:
        try:
            call.answer(answer)
        except Exception as error:  # a message with a missing field, or too large
            self._failed(call, error)

    def _malformed(self, call: Call, error: MalformedRpc) -> None:
        self.count("malformed_requests")
        call.fail(_INVALID_MESSAGE, f"{_UNHANDLED}{error}", FATAL)

    def _failed(self, call: Call, error: Exception) -> None:
        if isinstance(error, MalformedRpc):  # of a handler that decodes its requests itself
            self._malformed(call, error)
            return
        if isinstance(error, ServiceFailure):
            call.fail(error.exception, error.text)
            return
        if isinstance(error, MalformedText | IllegalName):
            self.count("malformed_requests")
            call.fail(_EXCEPTION, str(error))
            return
        self.count("handler_failures")
        log.error(
            "method %d of %s failed",
            call.request.method,
            call.peer,
            exc_info=error,
            extra={"failure": "handler"},
        )
        call.fail(
            _EXCEPTION, f"{type(error).__name__}: internal error; for details see the server's log"
        )

    async def finish(self, seconds: float) -> None:
        """Wait within a limit for handlers that run as tasks."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def close(self) -> None:
        self.stopping = True
        await super().close()

    async def _end_requests(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


_METHODS = frozenset(int(method) for method in Method)


class _Unknown(Exception):
    """A request without a handler."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _RejectedConnection(asyncio.Protocol):
    """A connection over the limit: closed at once, so that clients turn to other servers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
