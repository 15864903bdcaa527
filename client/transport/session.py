"""Sessions on an event loop: one connection per address, and requests from peers to the client.

The hot path creates no task and awaits nothing: `Session.request` passes a request to the
connection (see `peer`) and returns a future that the answer completes.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import Any, Self, TypeVar, Unpack, overload
from urllib.parse import urlsplit

from mq.client.errors import ClientError, MQError
from mq.client.machine import clock
from mq.client.options import ClientKeywords, ClientOptions
from mq.client.routing.address_server import is_url
from mq.client.transport.blocking import BlockingSession
from mq.client.transport.buffers import SYSTEM_BUFFERS, SocketBuffers
from mq.client.transport.caller import Endpoint, parse_address
from mq.client.transport.in_flight import Waiter
from mq.client.transport.peer import Peer
from mq.client.transport.session_routes import RoutingCaller
from mq.client.transport.tasks import end_with
from mq.protocol.codes import ResponseCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Answers a request from a peer: `(request, address) -> response or None`.
RequestHandler = Callable[[Command, str], Command | Awaitable[Command | None] | None]

_MAX_OPAQUE = 0x7FFFFFFF  # the wire format has a signed 32-bit number
_instances = count()  # distinguishes the clients of one process


class Session(RoutingCaller):
    """A client's connections, one per address, and its route cache. An async context manager.

    If a connection breaks, its pending requests fail; the next request opens another one. Cached
    routes are refreshed periodically (`Intervals.routes`, 30 seconds by default), and when a broker
    fails.
    """

    is_concurrent = True
    _directs = False  # whether requests may be redirected: see `_direct`

    def __init__(
        self,
        namesrv: str | Sequence[str],
        options: ClientOptions | None = None,
        *,
        dead_after: float | None = None,
        route_interval: float | None = None,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """Create a session. `options`, and keywords that name its fields, configure it (see
        `ClientOptions`).

        If supported by the system, a connection is closed when the peer's machine has acknowledged
        nothing for `dead_after` seconds. Routes are refreshed every `route_interval` seconds, by
        default as configured in the options' intervals. Raises ClientError for invalid addresses.
        """
        super().__init__(namesrv, options, **keywords)
        options = self.options
        self.connect_timeout = options.connect_timeout
        self.dead_after = dead_after
        self.buffers = buffers
        if route_interval is not None:
            self.route_interval = route_interval
        unit_name = options.unit_name
        self.unit_name = unit_name if unit_name and unit_name.strip() else None
        self._instance = options.instance or f"{os.getpid()}#{next(_instances)}#{clock.time_ns():x}"
        self._client_id: str | None = None
        self._peers: dict[str, Peer] = {}
        self._handlers: dict[int, RequestHandler] = {}
        #: Called with the address and code of each request that got no answer, by owner.
        self.on_unanswered: dict[object, Callable[[str, int], None]] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._opaques = count(1)

    @property
    def client_id(self) -> str:
        """ "ip@instance" or "ip@instance@unit", as in Java (ClientConfig.buildMQClientId)."""
        if self._client_id is None:
            host = own_host(_endpoint(self.name_server))
            parts = (host, self._instance, self.unit_name)
            self._client_id = "@".join(part for part in parts if part is not None)
        return self._client_id

    async def open(self) -> None:
        """Prepare for sending. Safe to call again."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.keep_task(self._refresh_routes())
            if self.address_server is not None:
                self.keep_task(self._refresh_name_servers())

    def blocking(self) -> BlockingSession:
        """Return a session to the same cluster for another thread, without an event loop."""
        return BlockingSession.beside(self)

    async def close(self) -> None:
        """Close every connection and stop background tasks. Safe to call again."""
        self._loop = None
        self._stop_refreshing()
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

        The returned future completes with the response, or with the result of `convert`. It fails
        with ConnectError, RequestTimeout or BadAnswer, or with the MQError that `convert` raises.
        The call itself raises ClientError if the session is not open, and HookRefused for a hook.
        """
        if self._directs:
            address = self._direct(address, command)
        command.opaque = self._next_opaque()
        if self._seals:
            self._seal(address, command)
        if self._rpc_hooks is not None:
            convert = self._hooked(address, command, convert)
        seconds = self.timeout if timeout is None else timeout
        return self._peer(address).request(command, seconds, convert)

    def forward(self, address: str, command: Command, seconds: float, waiter: Waiter) -> None:
        """Send a request on behalf of a waiter, which receives the answer or the failure.

        The request is unchanged except for its opaque. Hooks see the request only. Raises what
        `request` raises; the waiter is not called then.
        """
        command.opaque = self._next_opaque()
        if self._seals:
            self._seal(address, command)
        self._peer(address).forward(command, seconds, waiter)

    def _direct(self, address: str, command: Command) -> str:
        """Return the address to which a request to `address` is sent. Called only if `_directs` is
        set.
        """
        return address

    def heartbeat_peers(self, address: str) -> Iterable[str]:
        """Return the addresses that need a heartbeat so that the broker at `address` knows this
        client.
        """
        return (address,)

    def has_detour(self) -> bool:
        """Whether a broker that just failed may be reachable over another path."""
        return False

    def _ask(self, address: str, command: Command) -> "asyncio.Future[Command]":
        return self.request(address, command)

    def _hooked(
        self, address: str, request: Command, convert: Callable[[Command], Any] | None
    ) -> Callable[[Command], Any]:
        def read(response: Command) -> Any:
            self._responded(address, request, response)
            return response if convert is None else convert(response)

        return read

    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        return await self.request(address, command, timeout)

    async def invoke_oneway(self, address: str, command: Command) -> None:
        peer = self.send_oneway(address, command)
        await peer.drain()

    def send_oneway(self, address: str, command: Command) -> Peer:
        """Send a one-way request without waiting for the socket."""
        if self._directs:
            address = self._direct(address, command)
        command.flag |= ONE_WAY
        command.opaque = self._next_opaque()
        if self._seals:
            self._seal(address, command)
        peer = self._peer(address)
        peer.write(command)
        return peer

    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        return list(await asyncio.gather(*coroutines))

    def on_request(self, code: int, handler: RequestHandler) -> None:
        """Let `handler` answer the requests with this code from peers."""
        self._handlers[int(code)] = handler

    def serve(self, request: Command, peer: Peer) -> None:
        """Answer a request from a peer. Called by the connections of this session."""
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
            end_with(self.keep_task(self._answer_later(request, answer, peer)), answer)

    async def _answer_later(
        self, request: Command, answer: Awaitable[Command | None], peer: Peer
    ) -> None:
        try:
            response = await answer
        except Exception as error:
            response = self._refusal(request, error)
        self._answer(request, response, peer)

    def _refusal(self, request: Command, error: Exception) -> Command:
        """Answer a request whose handler raised: the peer waits, and the connection serves other
        requests.
        """
        remark = str(error)
        if not isinstance(error, MQError | ProtocolError | ValueError):
            log.error("request %d of a peer failed", request.code, exc_info=error)
            remark = f"{type(error).__name__}: {error}"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    def _answer(self, request: Command, response: Command | None, peer: Peer) -> None:
        if response is not None and not request.is_one_way:
            peer.write(response)

    def keep_task(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as a task that ends with the session."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def is_connected(self, address: str) -> bool:
        """Whether a connection to an address exists or is being opened."""
        return address in self._peers

    def _peer(self, address: str) -> Peer:
        peer = self._peers.get(address)
        if peer is None:
            if self._loop is None:
                raise ClientError("the session is not open: use `async with`")
            peer = self._peers[address] = Peer(self, address, self._loop)
        return peer

    def connection(self, address: str) -> object | None:
        """Return an object that identifies the current connection to an address."""
        return self._peers.get(address)

    def ended(self, address: str) -> "asyncio.Future[None]":
        """Return a future that completes when the current connection to an address ends; it is
        complete if there is none.
        """
        peer = self._peers.get(address)
        if peer is not None:
            return peer.ended
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended.set_result(None)
        return ended

    def _reaches(self, address: str) -> bool:
        peer = self._peers.get(address)
        return peer is not None and peer.stands

    async def disconnected(self, address: str) -> None:
        """Wait until the current connection to an address has ended."""
        await asyncio.shield(self.ended(address))

    def unanswered(self, address: str, codes: Iterable[int]) -> None:
        """Report requests that got no answer. Called by the connections of this session."""
        for code in set(codes) if self._loop is not None else ():
            for listener in list(self.on_unanswered.values()):
                listener(address, code)

    def drop_peer(self, peer: Peer) -> None:
        """Forget a connection that has ended. Called by the connections of this session."""
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]

    def _next_opaque(self) -> int:
        return next(self._opaques) & _MAX_OPAQUE


def _endpoint(place: str) -> Endpoint:
    """Return the endpoint of a name server, or of the address server at a URL."""
    if not is_url(place):
        return parse_address(place)
    url = urlsplit(place)
    return Endpoint(url.hostname or "", url.port or (443 if url.scheme == "https" else 80))


def own_host(endpoint: Endpoint) -> str:
    """Return this host's address towards a peer, without sending anything."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(endpoint)
            host: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return host
