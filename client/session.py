"""Sessions on an event loop: one connection per address, requests in flight side by side.

The hot path makes no task and awaits nothing: `Session.request` writes into the connection's
batch and returns a future that the answer completes. One write per turn of the event loop goes to
the socket, one pass over what arrived completes the futures. A connection exists from its first
request on, in the state "connecting" at first: what is written before it stands goes out when it
does, or fails when it cannot. Deadlines are kept beside the futures and looked at by one timer
per connection, because a timer per request costs more than the request.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload
from urllib.parse import urlsplit

from mq.client.address_server import ADDRESS_SERVER_SECONDS, fetch_text, is_url
from mq.client.buffers import SYSTEM_BUFFERS, SocketBuffers
from mq.client.caller import (
    ROUTE_RETRY_SECONDS,
    ROUTE_SECONDS,
    Caller,
    Endpoint,
    parse_address,
    route_request,
)
from mq.client.errors import (
    BadAnswer,
    ClientError,
    ConnectError,
    MQError,
    RequestTimeout,
    reason_of,
)
from mq.protocol.codes import ResponseCode
from mq.protocol.command import ONE_WAY, RESPONSE, Command
from mq.protocol.connection import Connection
from mq.protocol.errors import ProtocolError, RemoteProtocolError
from mq.protocol.frame import encode

if TYPE_CHECKING:
    import ssl

    from mq.client.credentials import AccessKey
    from mq.protocol.bodies import TopicRouteData

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Answers a request that a peer has pushed: `(request, address) -> response or None`.
RequestHandler = Callable[[Command, str], Command | Awaitable[Command | None] | None]

# A time-out ends a connection on which nothing has come for so long, answers to others included:
# a peer's machine that went away without a word would else be sent to for ever.
SILENCE_SECONDS = 3.0
# A name server that has not answered for so long is not waited for: the next one is asked, too.
HEDGE_SECONDS = 0.3
_MAX_OPAQUE = 0x7FFFFFFF  # the wire has a signed 32-bit number
_instances = count()  # tells the clients of one process apart


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("code", "convert", "deadline", "future", "seconds")

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        deadline: float,
        seconds: float,
        code: int,
        convert: Callable[[Command], Any] | None,
    ) -> None:
        self.future = future
        self.deadline = deadline
        self.seconds = seconds
        self.code = code
        self.convert = convert


class _Peer(asyncio.Protocol):
    """The connection to one address. Ends once: a new request then makes a new one."""

    def __init__(self, session: "Session", address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self._session = session
        self._loop = loop
        self._connection = Connection()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._batch: list[bytes] = []
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard = loop.time()  # when the peer's last bytes came, or the connection stood
        self._writable: asyncio.Future[None] | None = None  # set while the socket is full
        self._error: MQError | None = None
        self.ended: asyncio.Future[None] = loop.create_future()
        self._connecting = session.keep_task(self._connect())

    async def _connect(self) -> None:
        try:
            endpoint = parse_address(self.address)
            async with asyncio.timeout(self._session.connect_timeout):
                await self._loop.create_connection(lambda: self, *endpoint, ssl=self._session.tls)
        except TimeoutError:
            self._end(ConnectError(self.address, "no connection in time"))
        except OSError as error:
            self._end(ConnectError(self.address, reason_of(error)))
        except MQError as error:
            self._end(error)
        except asyncio.CancelledError:
            self._end(ConnectError(self.address, "the session was closed"))
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, so there is nothing to check.
        self._transport = transport = cast(asyncio.Transport, transport)
        if self._error is not None:
            transport.abort()
            return
        self._heard = self._loop.time()
        if self._session.dead_after is not None:
            _end_when_dead(transport.get_extra_info("socket"), self._session.dead_after)
        if any(self._session.buffers):
            self._session.buffers.set_on(transport.get_extra_info("socket"))
        self._flush()

    def request(
        self, command: Command, seconds: float, convert: Callable[[Command], Any] | None
    ) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()
        deadline = self._loop.time() + seconds
        self.write(command)  # first: it raises for what cannot be sent, and nobody would wait
        self._pending[command.opaque] = _Pending(future, deadline, seconds, command.code, convert)
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)
        return future

    def write(self, command: Command) -> None:
        self._batch.append(encode(command))
        if not self._flush_is_due and self._transport is not None:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._batch and self._transport is not None:
            self._transport.write(b"".join(self._batch))
            self._batch.clear()

    async def drain(self) -> None:
        """Wait while the socket takes no more. Raises ConnectError if the connection ends."""
        if self._transport is None and self._error is None:
            await asyncio.wait([self._connecting])
        while self._writable is not None:
            await asyncio.shield(self._writable)
        if self._error is not None:
            raise self._error

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            for command in self._connection.receive(data):
                if command.flag & RESPONSE:
                    pending = self._pending.pop(command.opaque, None)
                    if pending is not None and not pending.future.done():
                        self._complete(pending, command)
                else:
                    self._session.serve(command, self)
        except RemoteProtocolError as error:
            self._end(BadAnswer(self.address, str(error)))

    def _complete(self, pending: _Pending, response: Command) -> None:
        if pending.convert is None:
            pending.future.set_result(response)
            return
        try:
            pending.future.set_result(pending.convert(response))
        except MQError as error:
            pending.future.set_exception(error)
        except ProtocolError as error:
            pending.future.set_exception(BadAnswer(self.address, str(error)))
        except Exception as error:  # whatever it is, somebody waits
            log.exception("the answer of %s cannot be read", self.address)
            failure = BadAnswer(self.address, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            pending.future.set_exception(failure)

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail what is overdue; look again when the next one may be.

        When nothing at all has come meanwhile, the connection may lead nowhere: it ends, so that
        the next request makes another one.
        """
        self._timer = None
        now = self._loop.time()
        leads_nowhere = False
        overdue = [opaque for opaque, entry in self._pending.items() if entry.deadline <= now]
        for opaque in overdue:
            entry = self._pending.pop(opaque)
            if not entry.future.done():
                error = RequestTimeout(self.address, entry.seconds, entry.code)
                entry.future.set_exception(error)
                leads_nowhere = leads_nowhere or self._heard <= now - SILENCE_SECONDS
        if leads_nowhere:
            reason = f"nothing was heard for {now - self._heard:.1f} s"
            # What is written will never be taken: a transport that is closed would wait for it.
            self._end(ConnectError(self.address, reason), flushes=False)
        elif self._pending:
            self._watch(min(entry.deadline for entry in self._pending.values()))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the peer closed the connection"
        if exc is not None:
            reason = reason_of(exc) if isinstance(exc, OSError) else str(exc)
        self._end(ConnectError(self.address, reason))

    def _end(self, error: MQError, *, flushes: bool = True) -> None:
        """The connection is over: every request that waits fails with `error`."""
        if self._error is not None:
            return
        self._error = error
        self._session.drop_peer(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            if flushes:
                self._transport.close()
            else:
                self._transport.abort()
        self.resume_writing()
        self._batch.clear()
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        self._pending.clear()
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        self._flush()
        self._connecting.cancel()
        self._end(ConnectError(self.address, "the session was closed"))

    @property
    def local_host(self) -> str | None:
        if self._transport is None:
            return None
        name: tuple[str, int] = self._transport.get_extra_info("sockname")
        return name[0]


class Session(Caller):
    """A client's connections, one per address, and what it knows of routes.

    An async context manager. A connection that breaks fails what waits on it; the next request
    connects again. Routes that were asked for are refreshed every 30 seconds, and when a broker
    fails.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        timeout: float = 3.0,
        connect_timeout: float = 3.0,
        instance: str | None = None,
        unit_name: str | None = None,
        credentials: "AccessKey | None" = None,
        tls: "ssl.SSLContext | None" = None,
        dead_after: float | None = None,
        route_interval: float = ROUTE_SECONDS,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
    ) -> None:
        """`instance` sets this client's part of the client id; by default it is unique.

        `unit_name` is the unit of a cluster that spans several; messages say then that they are
        of a unit. Both timeouts are in seconds. Raises ClientError for addresses that are none.
        A connection ends when the peer's machine has acknowledged nothing for `dead_after` seconds,
        where the system can tell. Routes are refreshed every `route_interval` seconds.
        """
        super().__init__(namesrv, timeout=timeout, credentials=credentials, tls=tls)
        self.connect_timeout = connect_timeout
        self.dead_after = dead_after
        self.route_interval = route_interval
        self.buffers = buffers
        self.unit_name = unit_name if unit_name and unit_name.strip() else None
        self._instance = instance or f"{os.getpid()}#{next(_instances)}#{time.time_ns():x}"
        self._client_id: str | None = None
        self._peers: dict[str, _Peer] = {}
        self._handlers: dict[int, RequestHandler] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._opaques = count(1)
        self._fetching: dict[str, asyncio.Task[TopicRouteData]] = {}
        self._asked: dict[str, float] = {}  # when each route was asked for last
        self._due: dict[str, asyncio.TimerHandle] = {}  # routes that will be asked for in a moment
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def client_id(self) -> str:
        """ "ip@instance" or "ip@instance@unit", as Java's (ClientConfig.buildMQClientId)."""
        if self._client_id is None:
            host = _own_host(_endpoint(self.name_server))
            parts = (host, self._instance, self.unit_name)
            self._client_id = "@".join(part for part in parts if part is not None)
        return self._client_id

    async def open(self) -> None:
        """Get ready to send. Safe to call again."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.keep_task(self._refresh_routes())
            if self.address_server is not None:
                self.keep_task(self._refresh_name_servers())

    async def close(self) -> None:
        """Close every connection and stop what runs in the background. Safe to call again."""
        self._loop = None
        for due in self._due.values():
            due.cancel()
        self._due.clear()
        peers = list(self._peers.values())
        for peer in peers:
            peer.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for peer in peers:
            await peer.ended

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @overload
    def request(
        self, address: str, command: Command, timeout: float | None = None
    ) -> "asyncio.Future[Command]": ...

    @overload
    def request(
        self,
        address: str,
        command: Command,
        timeout: float | None,
        convert: Callable[[Command], T],
    ) -> "asyncio.Future[T]": ...

    def request(
        self,
        address: str,
        command: Command,
        timeout: float | None = None,
        convert: Callable[[Command], T] | None = None,
    ) -> "asyncio.Future[Any]":
        """Send a request without waiting.

        The future gets the response, or what `convert` makes of it.
        The future fails with ConnectError, RequestTimeout or BadAnswer, or with the MQError that
        `convert` raises. Raises ClientError when the session is not open.
        """
        command.opaque = self._next_opaque()
        if self.credentials is not None:
            self.credentials.sign(command)
        seconds = self.timeout if timeout is None else timeout
        return self._peer(address).request(command, seconds, convert)

    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        return await self.request(address, command, timeout)

    async def invoke_oneway(self, address: str, command: Command) -> None:
        peer = self.send_oneway(address, command)
        await peer.drain()

    def send_oneway(self, address: str, command: Command) -> _Peer:
        """Send a request that nobody answers, without waiting until the socket takes it."""
        command.flag |= ONE_WAY
        command.opaque = self._next_opaque()
        if self.credentials is not None:
            self.credentials.sign(command)
        peer = self._peer(address)
        peer.write(command)
        return peer

    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        return list(await asyncio.gather(*coroutines))

    def on_request(self, code: int, handler: RequestHandler) -> None:
        """Let `handler` answer the requests of this code that peers push to us."""
        self._handlers[int(code)] = handler

    def serve(self, request: Command, peer: _Peer) -> None:
        """Answer a request that a peer has pushed. For the connections of this session."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"this client has no handler for request {request.code}"
            self._answer(
                request, request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark), peer
            )
            return
        try:
            answer = handler(request, peer.address)
        except Exception as error:
            answer = self._refusal(request, error)
        if isinstance(answer, Command) or answer is None:
            self._answer(request, answer, peer)
        else:
            self.keep_task(self._answer_later(request, answer, peer))

    async def _answer_later(
        self, request: Command, answer: Awaitable[Command | None], peer: _Peer
    ) -> None:
        try:
            response = await answer
        except Exception as error:
            response = self._refusal(request, error)
        self._answer(request, response, peer)

    def _refusal(self, request: Command, error: Exception) -> Command:
        """The peer waits for an answer, and the connection serves others, whatever was raised."""
        remark = str(error)
        if not isinstance(error, MQError | ProtocolError | ValueError):
            log.error("request %d of a peer failed", request.code, exc_info=error)
            remark = f"{type(error).__name__}: {error}"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    def _answer(self, request: Command, response: Command | None, peer: _Peer) -> None:
        if response is not None and not request.is_one_way:
            peer.write(response)

    def keep_task(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as a task that ends with the session."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def is_connected(self, address: str) -> bool:
        """Whether there is a connection to an address, or one is being made."""
        return address in self._peers

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is None:
            if self._loop is None:
                raise ClientError("the session is not open: use `async with`")
            peer = self._peers[address] = _Peer(self, address, self._loop)
        return peer

    def connection(self, address: str) -> object | None:
        """Stands for the connection there is to an address: another one is another object."""
        return self._peers.get(address)

    async def disconnected(self, address: str) -> None:
        """Wait until the connection there is to an address has ended."""
        peer = self._peers.get(address)
        if peer is not None:
            await asyncio.shield(peer.ended)

    def drop_peer(self, peer: _Peer) -> None:
        """Forget a connection that has ended. For the connections of this session."""
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]

    def _next_opaque(self) -> int:
        return next(self._opaques) & _MAX_OPAQUE

    # routes ---------------------------------------------------------------------------------

    async def route(self, topic: str, *, max_age: float = ROUTE_SECONDS) -> "TopicRouteData":
        """Return the route of `topic`: what is known at once, however old, while it is refreshed.

        So no call waits for a name server that hangs, but the first one for a topic. With a
        `max_age` of 0 it is asked for and waited for.

        Raises:
            RouteNotFound: the name server does not know the topic.
            ConnectError, RequestTimeout: no name server answers and no route is known.
            ClientError: the session was closed meanwhile.
        """
        known = self.current_route(topic, max_age=max_age) if max_age > 0 else None
        return await self.fresh_route(topic) if known is None else known

    def current_route(
        self, topic: str, *, max_age: float = ROUTE_SECONDS
    ) -> "TopicRouteData | None":
        """The route of `topic` if it is known; when it is older than that it is refreshed."""
        known = self._routes.get(topic)
        if known is None:
            return None
        if time.monotonic() >= known[1] + max_age:
            self.refresh_route(topic)
        return known[0]

    def refresh_route(self, topic: str) -> None:
        """Ask for a route in the background; in a moment if it was asked for just now."""
        loop = self._loop
        if loop is None or topic in self._fetching or topic in self._due:
            return
        pause = self._asked.get(topic, -inf) + ROUTE_RETRY_SECONDS - time.monotonic()
        if pause <= 0:
            self._fetch(topic)
        else:
            self._due[topic] = loop.call_later(pause, self._fetch, topic)

    async def fresh_route(self, topic: str) -> "TopicRouteData":
        """Ask a name server for the route of `topic`, with all others who want it now.

        Raises as `route`.
        """
        fetching = self._fetch(topic)
        await asyncio.wait([fetching])  # of many who wait, one may give up
        if fetching.cancelled():
            raise ClientError("the session was closed")
        return fetching.result()

    def _fetch(self, topic: str) -> "asyncio.Task[TopicRouteData]":
        fetching = self._fetching.get(topic)
        if fetching is None:
            due = self._due.pop(topic, None)
            if due is not None:
                due.cancel()
            self._asked[topic] = time.monotonic()
            fetching = self._fetching[topic] = self.keep_task(self._fetch_route(topic))
            fetching.add_done_callback(lambda task: self._fetched(topic, task))
        return fetching

    def _fetched(self, topic: str, task: "asyncio.Task[TopicRouteData]") -> None:
        self._fetching.pop(topic, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if topic not in self._routes:
            self._asked.pop(topic, None)  # one that is not there is not kept account of
        elif isinstance(error, MQError):
            log.debug("the route of %s stays as it was: %s", topic, error)
        else:
            log.error("the route of %s cannot be refreshed", topic, exc_info=error)

    def outdate_route(self, topic: str) -> None:
        super().outdate_route(topic)
        if topic in self._routes:
            self.refresh_route(topic)

    async def _ask_for_route(self, topic: str) -> tuple[Command, str]:
        """The first answer: a name server that hangs is soon not the only one that is asked."""
        addresses = await self.find_name_servers()
        start = self._chosen_name_server
        untried = [*addresses[start:], *addresses[:start]]
        asked: dict[asyncio.Future[Command], str] = {}
        last: MQError = ClientError("no name server given")
        try:
            while untried or asked:
                if untried:
                    address = untried.pop(0)
                    asked[self.request(address, route_request(topic))] = address
                done, _ = await asyncio.wait(
                    asked,
                    timeout=HEDGE_SECONDS if untried else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for answer in done:
                    address = asked.pop(answer)
                    try:
                        response = answer.result()
                    except (ConnectError, RequestTimeout) as error:
                        last = error
                        continue
                    self._answered(address)
                    return response, address
        finally:
            for answer in asked:
                answer.cancel()
        raise last

    async def _read_address_server(self, url: str) -> str:
        return await asyncio.to_thread(fetch_text, url)

    async def _refresh_name_servers(self) -> None:
        while True:
            await asyncio.sleep(ADDRESS_SERVER_SECONDS)
            before = self.name_servers
            try:
                await self.ask_address_server()
            except MQError as error:
                log.warning("the name servers stay as they are: %s", error)
            if self.name_servers != before:
                log.info("name servers: %s", ", ".join(self.name_servers))

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.route_interval)
            for topic, (_, fetched) in list(self._routes.items()):
                if fetched == inf:  # another topic's, which it shares
                    continue
                # A route that cannot be had now stays as it is; who needs it will see the error.
                try:
                    await self.fresh_route(topic)
                except (ConnectError, RequestTimeout):
                    break  # nor can the others be had
                except MQError:
                    continue
                except Exception:
                    log.exception("the route of %s cannot be refreshed", topic)


def _end_when_dead(sock: socket.socket, seconds: float) -> None:
    """Have the kernel probe a silent connection each second, and end one that leads nowhere."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, int(seconds)))


def _endpoint(place: str) -> Endpoint:
    """Where a name server, or the address server at a URL, listens."""
    if not is_url(place):
        return parse_address(place)
    url = urlsplit(place)
    return Endpoint(url.hostname or "", url.port or (443 if url.scheme == "https" else 80))


def _own_host(endpoint: Endpoint) -> str:
    """The address that this host uses towards a peer; nothing is sent to find out."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(endpoint)
            host: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return host
