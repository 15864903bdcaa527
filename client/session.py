"""Sessions on an event loop: one connection per address, and what peers ask of the client.

The hot path makes no task and awaits nothing: `Session.request` hands a request to the connection
(see `peer`) and returns a future that the answer completes.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import Any, Self, TypeVar, Unpack, overload
from urllib.parse import urlsplit

from mq.client.address_server import is_url
from mq.client.blocking import BlockingSession
from mq.client.buffers import SYSTEM_BUFFERS, SocketBuffers
from mq.client.caller import Endpoint, parse_address
from mq.client.cancellation import end_with
from mq.client.errors import ClientError, MQError
from mq.client.in_flight import Waiter
from mq.client.machine import clock
from mq.client.options import ClientKeywords, ClientOptions
from mq.client.peer import Peer
from mq.client.session_routes import RoutingCaller
from mq.protocol.codes import ResponseCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Answers a request that a peer has pushed: `(request, address) -> response or None`.
RequestHandler = Callable[[Command, str], Command | Awaitable[Command | None] | None]

_MAX_OPAQUE = 0x7FFFFFFF  # the wire has a signed 32-bit number
_instances = count()  # tells the clients of one process apart


class Session(RoutingCaller):
    """A client's connections, one per address, and what it knows of routes.

    An async context manager. A connection that breaks fails what waits on it; the next request
    connects again. Routes that were asked for are refreshed again and again (`Intervals.routes`, 30
    seconds unless said otherwise), and when a broker fails.
    """

    is_concurrent = True
    _directs = False  # whether requests go elsewhere than to who is asked: see `_direct`

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
        """`options`, and keywords that are fields of them, say how (see `ClientOptions`).

        A connection ends when the peer's machine has acknowledged nothing for `dead_after` seconds,
        where the system can tell. Routes are refreshed every `route_interval` seconds, by default
        as the options' intervals say. Raises ClientError for invalid addresses.
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
        #: Called with the address and the code of requests that failed without an answer, by owner.
        self.on_unanswered: dict[object, Callable[[str, int], None]] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._opaques = count(1)

    @property
    def client_id(self) -> str:
        """ "ip@instance" or "ip@instance@unit", as Java's (ClientConfig.buildMQClientId)."""
        if self._client_id is None:
            host = own_host(_endpoint(self.name_server))
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

    def blocking(self) -> BlockingSession:
        """A session to the same cluster for another thread, without an event loop."""
        return BlockingSession.beside(self)

    async def close(self) -> None:
        """Close every connection and stop what runs in the background. Safe to call again."""
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

        The future gets the response, or what `convert` makes of it.
        The future fails with ConnectError, RequestTimeout or BadAnswer, or with the MQError that
        `convert` raises. Raises ClientError when the session is not open, HookRefused of a hook.
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
        """Send a request on behalf of somebody else, who is told the answer, or why there is none.

        Nothing is made of it but its place among those that wait. Hooks see the request only.
        Raises as `request`; the waiter is told nothing then.
        """
        command.opaque = self._next_opaque()
        if self._seals:
            self._seal(address, command)
        self._peer(address).forward(command, seconds, waiter)

    def _direct(self, address: str, command: Command) -> str:
        """Where a request to `address` goes, if `_directs`."""
        return address

    def heartbeat_peers(self, address: str) -> Iterable[str]:
        """Who gets a heartbeat so that the broker at `address` knows us."""
        return (address,)

    def has_detour(self) -> bool:
        """Whether a broker that has just failed may be reached in another way."""
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
        """Send a request that nobody answers, without waiting until the socket takes it."""
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
        """Let `handler` answer the requests of this code that peers push to us."""
        self._handlers[int(code)] = handler

    def serve(self, request: Command, peer: Peer) -> None:
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
        """The peer waits for an answer, and the connection serves others, whatever was raised."""
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
        """Whether there is a connection to an address, or one is being made."""
        return address in self._peers

    def _peer(self, address: str) -> Peer:
        peer = self._peers.get(address)
        if peer is None:
            if self._loop is None:
                raise ClientError("the session is not open: use `async with`")
            peer = self._peers[address] = Peer(self, address, self._loop)
        return peer

    def connection(self, address: str) -> object | None:
        """Stands for the connection there is to an address: another one is another object."""
        return self._peers.get(address)

    def ended(self, address: str) -> "asyncio.Future[None]":
        """Done when the connection there is to an address has ended; at once if there is none."""
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
        """Wait until the connection there is to an address has ended."""
        await asyncio.shield(self.ended(address))

    def unanswered(self, address: str, codes: Iterable[int]) -> None:
        """Requests with these codes had no answer. For the connections of this session."""
        for code in set(codes) if self._loop is not None else ():
            for listener in list(self.on_unanswered.values()):
                listener(address, code)

    def drop_peer(self, peer: Peer) -> None:
        """Forget a connection that has ended. For the connections of this session."""
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]

    def _next_opaque(self) -> int:
        return next(self._opaques) & _MAX_OPAQUE


def _endpoint(place: str) -> Endpoint:
    """Where a name server, or the address server at a URL, listens."""
    if not is_url(place):
        return parse_address(place)
    url = urlsplit(place)
    return Endpoint(url.hostname or "", url.port or (443 if url.scheme == "https" else 80))


def own_host(endpoint: Endpoint) -> str:
    """The address that this host uses towards a peer; nothing is sent to find out."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(endpoint)
            host: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return host
