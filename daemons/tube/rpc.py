"""The port of a TubeMQ server: connections, requests, and the table of handlers that answer them.

A handler is called once per request, without a task, when it has come whole. It answers at once by
what it returns, or later by the `Call` that it was given; a coroutine runs as a task. One write per
turn of the loop takes all answers of a connection.

What one peer may make us hold is bounded. While it does not take its answers, or has too many
requests under way, it is not read from, and what has been read already waits undecoded.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from google.protobuf.message import Message

from mq.client.machine import clock
from mq.daemons.memory import PIECE_COST, MemoryBudget
from mq.daemons.overload.busy_reply import BusyReply
from mq.protocol.tube.codes import SERVICES, Method, Service
from mq.protocol.tube.errors import FrameError, IllegalName, MalformedRpc, MalformedText
from mq.protocol.tube.frame import MAX_CHUNKS, FrameDecoder
from mq.protocol.tube.messages import parse
from mq.protocol.tube.names import MAX_MESSAGE_SIZE, MESSAGE_HEADER_SIZE
from mq.protocol.tube.rpc import (
    ERROR,
    FATAL,
    Request,
    decode_request,
    encode_failure,
    encode_response,
)

log = logging.getLogger(__name__)

Answer = Message | bytes
Handler = Callable[["Call"], Answer | Awaitable[Answer] | None]

#: The most that the message of a request may have, in bytes: a send, and anything else. Ten
#: thousand partitions are under two of these megabytes. Of each byte of a list protobuf makes a
#: dozen, so the limit of frames would be none.
MAX_SEND = MAX_MESSAGE_SIZE + 2 * MESSAGE_HEADER_SIZE
MAX_BODY = 4 * 1024 * 1024

#: How long a request may take whose client does not say how long it waits.
DEFAULT_TIMEOUT_MS = 10_000

#: Requests of one connection, and their bytes, that may be under way before it is not read from.
MAX_CALLS = 4096
MAX_OWED = 32 * 1024 * 1024

#: Bytes that wait for one slow peer before it is not read from: two answers of the usual size.
WRITE_LIMIT = 1024 * 1024

# Answers to requests that came together are joined up to this size, then they leave.
_JOINED = 256 * 1024

# Texts of the original: NettyRpcServer.channelRead, PbEnDecoder, RpcProtocol.handleRequest.
_UNREADABLE = "IPC server unable to read call parameters:"
_UNHANDLED = "IPC server handle request error :"
_EXCEPTION = "java.lang.Exception"
_INVALID_MESSAGE = "com.google.protobuf.InvalidProtocolBufferException"


def _services(method: Method) -> tuple[Service, ...]:
    """Where a method is served. The Go client sends to the service that messages are read from, and
    the original takes it (PbEnDecoder.isValidServiceTypeAndMethod)."""
    if method is Method.SEND_MESSAGE_P2B:
        return Service.BROKER_WRITE, Service.BROKER_READ
    return (SERVICES[method],)


class ServiceFailure(Exception):
    """Raised by a handler to answer with an exception (see `rpc.EXCEPTIONS`), not a result."""

    def __init__(self, exception: str, text: str) -> None:
        super().__init__(f"{exception}: {text}")
        self.exception = exception
        self.text = text


@dataclass(frozen=True, slots=True)
class Route:
    """Who answers a method.

    Attributes:
        handle: see `Handler`.
        kind: the message that a request has; `Call.message` is one. Without it a handler reads
            `Call.request.body` by itself.
        limit: bytes that it may have.
    """

    handle: Handler
    kind: type[Message] | None = None
    limit: int = MAX_BODY


class Call:
    """A request that is to be answered, once. What comes too late or twice is dropped."""

    __slots__ = ("_channel", "_done", "deadline", "message", "request")

    def __init__(self, channel: "RpcChannel", request: Request, deadline: float) -> None:
        self.request = request
        self.deadline = deadline  # by the loop's clock: its client has given up then
        self.message: Any = None  # of the route's kind
        self._channel = channel
        self._done = False

    @property
    def host(self) -> str:
        """The address that the request came from, without a port."""
        return self._channel.host

    @property
    def peer(self) -> str:
        """ "host:port" that the request came from."""
        return self._channel.remote

    @property
    def tls(self) -> bool:
        return self._channel.tls

    @property
    def answered(self) -> bool:
        return self._done

    def answer(self, message: Answer) -> None:
        """Answer with the method's message, or its bytes."""
        body = message if isinstance(message, bytes) else message.SerializeToString()
        self.answer_frame(encode_response(self.request.serial, self.request.method, body))

    def answer_frame(self, frame: bytes) -> None:
        """Answer with a whole frame, whose serial is the request's."""
        if not self._done:
            self._done = True
            self._channel.answered(self, frame)

    def fail(self, exception: str, text: str, status: int = ERROR) -> None:
        """Answer with an exception."""
        frame = encode_failure(self.request.serial, status, exception, text, self.request.version)
        self.answer_frame(frame)


class RpcChannel(asyncio.Protocol):
    """One connection of a peer, from accept to close."""

    def __init__(self, listener: "RpcListener") -> None:
        self.host = ""
        self.remote = ""
        self.tls = False
        self.closed = False
        self.active_at = listener.ticks
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(listener.max_chunks)
        self._unserved: deque[tuple[int, bytes, float]] = deque()  # and when it came
        self._unserved_bytes = 0
        self._calls = 0
        self._owed = 0
        self._writing_paused = False
        self._reading_paused = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._serving = False
        self._flush_is_due = False

    # asyncio calls these ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's are none
        transport.set_write_buffer_limits(high=WRITE_LIMIT)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.host = peer[0]
        self.remote = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self.tls = transport.get_extra_info("ssl_object") is not None
        self._listener.channels[self] = None
        if self._listener.closing:  # its handshake took longer
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._unserved.clear()
        self._unserved_bytes = 0
        self._listener.forget(self)

    def data_received(self, data: bytes) -> None:
        self.active_at = self._listener.ticks
        now = self._listener.now()
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self._listener.count("broken_frames")
            log.warning("closing %s: %s", self.remote, error, extra={"failure": "frame"})
            self.close()
            return
        for serial, payload in frames:
            self._unserved.append((serial, payload, now))
            self._unserved_bytes += len(payload) + PIECE_COST
        if frames:
            self._serve()
        if self._unserved or self._decoder.held:
            self._listener.memory.took(len(data))

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._throttle()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._throttle()

    # ------------------------------------------------------------------------------------------

    @property
    def stalled(self) -> bool:
        """Whether it has to take answers before more of its requests are looked at."""
        return self._writing_paused or self._calls >= MAX_CALLS or self._owed >= MAX_OWED

    def _throttle(self) -> None:
        transport = self._transport
        if transport is None or self.closed or transport.is_closing():
            return
        if self.stalled != self._reading_paused:
            self._reading_paused = not self._reading_paused
            if self._reading_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()
        if self._unserved and not self.stalled and not self._serving:
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Have what came answered, until the peer is stalled."""
        if self._serving:
            return
        self._serving = True
        try:
            while self._unserved and not self.closed:
                if self.stalled:
                    self._throttle()
                    break
                serial, payload, came = self._unserved.popleft()
                self._unserved_bytes -= len(payload) + PIECE_COST
                self._listener.serve(self, serial, payload, came)
        finally:
            self._serving = False
        self._flush()

    def begin(self, size: int) -> None:
        """A request of so many bytes is under way."""
        self._calls += 1
        self._owed += size

    def answered(self, call: Call, frame: bytes) -> None:
        """It is not any more; this is the answer."""
        self._calls -= 1
        self._owed -= len(call.request.body)
        if self._listener.now() >= call.deadline:
            # The original gives up silently, too: its client has (NettyRequestContext.write).
            self._listener.count("expired_requests")
        else:
            self.send(frame)
        if self._reading_paused:
            self._throttle()

    def send(self, frame: bytes) -> None:
        """Send a frame; it leaves with what else is sent in this turn of the loop."""
        if self.closed:
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > _JOINED:
            self._flush()
        elif not self._serving and not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        out = self._out
        if not out or self.closed or self._transport is None:
            return
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        self._listener.memory.took(self._out_bytes)
        out.clear()
        self._out_bytes = 0

    @property
    def memory(self) -> int:
        """Bytes that this peer uses of ours."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._decoder.held + self._unserved_bytes + self._owed + self._out_bytes + unsent

    def evict(self, reply: BusyReply) -> None:
        """Close at once; there is no answer in TubeMQ that says why."""
        self.abort()

    def close(self) -> None:
        """Close once what was sent has left. Calling it again does nothing."""
        self._unserved.clear()
        self._unserved_bytes = 0
        if self._transport is not None and not self._transport.is_closing():
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is not sent yet."""
        if self._transport is not None:
            self._transport.abort()


class RpcListener:
    """A port, and the table of what is served there. An async context manager.

    Args:
        routes: who answers which method.
        port: 0 takes any; `port` is the one bound.
        tls: all connections are encrypted.
        idle_seconds: closes a connection on which nothing has come for so long; 0 never does.
            Clients send heartbeats each 10 to 60 s.
        max_connections: how many may be open; 0 is no limit.
        max_chunks: of a frame.
        memory: the budget of what peers may use of ours, shared by the ports of a daemon.

    `requests` says how many came, by method; `counters` how often what happened: "requests",
    "broken_frames", "malformed_requests", "unknown_methods", "expired_requests",
    "handler_failures", "refused_connections".
    """

    # For so many seconds a stop waits for peers to take their answers.
    LAST_WORDS = 3.0
    # How often idle connections are looked for, in seconds; also the unit of `ticks`.
    TICK = 5.0

    def __init__(
        self,
        routes: Mapping[Method, Route],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        idle_seconds: float = 300,
        max_connections: Callable[[], int] = lambda: 0,
        max_chunks: int = MAX_CHUNKS,
        memory: MemoryBudget | None = None,
        backlog: int = 1024,
    ) -> None:
        self.routes = routes
        self.host = host
        self.port = port
        self.max_chunks = max_chunks
        self.channels: dict[RpcChannel, None] = {}
        self.memory = MemoryBudget() if memory is None else memory
        self.memory.watch(self.channels.keys())
        self.counters: Counter[str] = Counter()
        # By method; -1: those that there are not.
        self.requests: dict[int, int] = dict.fromkeys((-1, *_METHODS), 0)
        self.stopping = False  # answers that the service stops, to whatever is asked
        self.closing = False
        self.ticks = 0
        self._tls = tls
        self._idle_ticks = int(idle_seconds / self.TICK)
        self._max_connections = max_connections
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone: asyncio.Future[None] | None = None  # done when the last channel has gone
        self._loop: asyncio.AbstractEventLoop | None = None
        self.now: Callable[[], float] = clock.monotonic  # until there is a loop

    @property
    def routes(self) -> Mapping[Method, Route]:
        """Who answers which method; another table may take its place at any time."""
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

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def bind(self) -> None:
        """Take the port without accepting yet. Raises OSError naming an address that is taken."""
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        try:
            self._server = await self._loop.create_server(
                self._accept,
                self.host,
                self.port,
                backlog=self._backlog,
                ssl=self._tls,
                start_serving=False,
            )
        except OSError as error:
            why = str(error.strerror or error)
            if error.errno == errno.EADDRINUSE:  # the loop's own text says the address once more
                why = "another process does already"
            raise OSError(error.errno, f"cannot listen on {self.host}:{self.port}: {why}") from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def start(self) -> None:
        """Accept connections, on a port of its own if none was taken before. Raises OSError."""
        if self._server is None:
            await self.bind()
        assert self._server is not None and self._loop is not None
        await self._server.start_serving()
        self._timer = self._loop.call_later(self.TICK, self._tick)

    def _accept(self) -> asyncio.Protocol:
        most = self._max_connections()
        if most and len(self.channels) >= most:
            self.count("refused_connections")
            log.warning("a connection is turned away: there are %d", most)
            return _TurnedAway()
        return RpcChannel(self)

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
        # None of this looks up an IntEnum, whose hash is a function of Python's.
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
        """Raises _Unknown, in the words of the original, and ServiceFailure while it stops."""
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
            task.add_done_callback(self._tasks.discard)

    async def _answer_later(self, call: Call, answer: Awaitable[Answer]) -> None:
        try:
            self._answer(call, await answer)
        except Exception as error:
            self._failed(call, error)
        except BaseException:
            call.fail("ServiceStoppingException", "service is stopping...")
            raise

    def _answer(self, call: Call, answer: Answer) -> None:
        try:
            call.answer(answer)
        except Exception as error:  # a message that lacks a field, or is too large
            self._failed(call, error)

    def _malformed(self, call: Call, error: MalformedRpc) -> None:
        self.count("malformed_requests")
        call.fail(_INVALID_MESSAGE, f"{_UNHANDLED}{error}", FATAL)

    def _failed(self, call: Call, error: Exception) -> None:
        if isinstance(error, MalformedRpc):  # of one that reads its requests itself
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
        call.fail(_EXCEPTION, f"{type(error).__name__}: the server failed, and has logged why")

    def stop_accepting(self) -> None:
        """Take no new connection; those that are open go on."""
        if self._server is not None:
            self._server.close()

    async def finish(self, seconds: float) -> None:
        """Wait at most so long for handlers that run as tasks."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def close(self) -> None:
        """Stop accepting, end what runs, close every connection. Idempotent.

        A peer that does not take its answers has a few seconds; then its connection is broken off.
        """
        self.stopping = self.closing = True
        if self._timer is not None:
            self._timer.cancel()
        self.stop_accepting()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for channel in list(self.channels):
            channel.close()
        if self.channels:
            loop = asyncio.get_running_loop()
            self._gone = loop.create_future()
            end = loop.call_later(self.LAST_WORDS, self._break_off)
            try:
                await self._gone
            finally:
                end.cancel()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def _break_off(self) -> None:
        log.warning("%d peers do not take what was sent: broken off", len(self.channels))
        for channel in list(self.channels):
            channel.abort()

    def forget(self, channel: RpcChannel) -> None:
        """A channel has closed."""
        self.channels.pop(channel, None)
        if not self.channels and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _tick(self) -> None:
        self.ticks += 1
        self.memory.look()
        if self._idle_ticks:
            oldest = self.ticks - self._idle_ticks
            for channel in [c for c in self.channels if c.active_at < oldest]:
                log.info("closing %s: idle", channel.remote)
                channel.close()
        assert self._loop is not None
        self._timer = self._loop.call_later(self.TICK, self._tick)


_METHODS = frozenset(int(method) for method in Method)


class _Unknown(Exception):
    """A request that nobody here answers."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _TurnedAway(asyncio.Protocol):
    """A connection over the limit: closed at once, as clients then turn to others."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
