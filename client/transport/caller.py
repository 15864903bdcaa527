"""The base of all sessions, independent of how they do their I/O.

`Session` waits on an event loop. `BlockingSession` blocks on a socket inside its coroutines, so
that a short command needs no event loop (importing asyncio takes longer than such a command).
Everything built on them (`Admin`, `PullConsumer`) is written once, against `Caller`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack, cast

from mq.client.errors import (
    BadAnswer,
    ClientError,
    ConnectError,
    MQError,
    RequestTimeout,
    RouteNotFound,
    for_code,
    reason_of,
)
from mq.client.hooks import HookRefused, RpcHook, of_kind
from mq.client.machine import clock
from mq.client.options import ClientKeywords, ClientOptions, chosen_serialization, refuse, take
from mq.client.routing.address_server import fetch_text, is_url
from mq.client.routing.routes import broker_address, decode_route
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.credentials import AccessKey
    from mq.protocol.bodies import TopicRouteData

T = TypeVar("T")

_SUCCESS = frozenset((int(ResponseCode.SUCCESS),))
# How long a route is used before it is fetched again, as in Java's clients
# (ClientConfig.pollNameServerInterval).
ROUTE_SECONDS = 30.0
# The shortest time between two attempts to fetch a route after a failure.
ROUTE_RETRY_SECONDS = 0.5
_LAST_BINARY_CODE = 0x7FFF


class Endpoint(NamedTuple):
    """A host name or address, and a port."""

    host: str
    port: int


def parse_address(address: str) -> Endpoint:
    """Split "host:port". An IPv6 host may be in brackets.

    Raises ClientError if `address` is not valid.
    """
    host, colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ClientError(f"{address!r} is not host:port")
    if not _can_be_looked_up(host):
        raise ClientError(
            f"{address!r}: the host is not a name or an address: it has a blank, a NUL or one of "
            "/,;#, or a part of it is empty or too long"
        )
    return Endpoint(host, int(port))


def _can_be_looked_up(host: str) -> bool:
    """Whether the resolver accepts a host name; it raises ValueError for the names refused here."""
    if any(c.isspace() or c in "\0/,;#" for c in host):
        return False
    if host.isascii():
        return all(0 < len(part) < 64 for part in host.removesuffix(".").split("."))
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def parse_name_servers(namesrv: str | Sequence[str]) -> tuple[str, ...]:
    """Split a list in the format of NAMESRV_ADDR: "host:port;host:port", or with commas.

    Raises ClientError if the list is empty or an entry is not host:port.
    """
    parts = namesrv.replace(",", ";").split(";") if isinstance(namesrv, str) else namesrv
    addresses = tuple(part.strip() for part in parts if part.strip())
    if not addresses:
        raise ClientError("no name server given")
    for address in addresses:
        parse_address(address)
    return addresses


def route_request(topic: str) -> Command:
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)


class Caller(ABC):
    """Sends requests to brokers and name servers, and caches the routes of topics."""

    #: Whether several requests can be in flight at once, on an event loop.
    is_concurrent = False

    def __init__(
        self,
        namesrv: str | Sequence[str],
        options: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """Create a session. `options`, and keywords that name its fields, configure it (see
        `ClientOptions`).

        `namesrv` is a list of name servers, or the http or https URL of an address server. Raises
        ClientError for invalid addresses, and for a ROCKETMQ_SERIALIZE_TYPE that does not name a
        serialization.
        """
        given = cast("dict[str, Any]", keywords)
        self.options = take(options or ClientOptions(), given)
        refuse(self, given)
        self.timeout = self.options.timeout
        self.tls = self.options.tls
        self._serialization = chosen_serialization(self.options)
        self._rpc_hooks: tuple[RpcHook, ...] | None = of_kind(self.options.hooks, RpcHook)
        self.credentials = self.options.credentials
        self.address_server = str(namesrv) if is_url(namesrv) else None
        #: With an address server: empty until the list has been fetched.
        self.name_servers = () if self.address_server else parse_name_servers(namesrv)
        self._routes: dict[str, tuple[TopicRouteData, float]] = {}
        self._chosen_name_server = 0

    @property
    def credentials(self) -> "AccessKey | None":
        """The access key that signs requests. It can be replaced or removed at any time."""
        return self._credentials

    @credentials.setter
    def credentials(self, key: "AccessKey | None") -> None:
        self._credentials = key
        # Whether requests need any processing: a single check on the hot path.
        self._seals = bool(self._serialization or self._rpc_hooks or key)

    def options_for(
        self, client: ClientOptions | None, keywords: "dict[str, Any]"
    ) -> ClientOptions:
        """Return the options of a client that shares this session: by default those of the session.

        Raises ClientError for an RpcHook that is not among the session's own hooks.
        """
        options = take(client or self.options, keywords)
        for hook in of_kind(options.hooks, RpcHook) or ():
            if hook not in self.options.hooks:
                raise ClientError(
                    f"{type(hook).__name__} is around requests: give it to the session"
                )
        return options

    def set_name_servers(self, namesrv: str | Sequence[str]) -> None:
        """Replace the list of name servers. Raises ClientError for invalid addresses."""
        addresses = parse_name_servers(namesrv)
        chosen = self.name_servers[self._chosen_name_server] if self.name_servers else None
        self.name_servers = addresses
        self._chosen_name_server = addresses.index(chosen) if chosen in addresses else 0

    async def find_name_servers(self) -> tuple[str, ...]:
        """Return the name servers, fetching the list from the address server on first use.

        Raises ConnectError and BadAnswer, both with the URL of the address server.
        """
        if not self.name_servers and self.address_server is not None:
            await self.ask_address_server()
        return self.name_servers

    async def ask_address_server(self) -> None:
        """Fetch the current list from the address server. Raises what `find_name_servers`
        raises.
        """
        url = self.address_server
        if url is None:
            raise ClientError("this session was given its name servers, not an address server")
        try:
            self.set_name_servers(await self._read_address_server(url))
        except OSError as error:
            raise ConnectError(url, reason_of(error)) from None
        except (ClientError, ValueError) as error:
            raise BadAnswer(url, str(error)) from None

    async def _read_address_server(self, url: str) -> str:
        return fetch_text(url)

    @property
    def name_server(self) -> str:
        """The peer that the session currently queries: a name server, or the address server until
        the list is known.
        """
        if self.name_servers:
            return self.name_servers[self._chosen_name_server]
        return self.address_server or ""

    @abstractmethod
    def blocking(self) -> "AbstractContextManager[Caller]":
        """Return a session to the same cluster for another thread, without an event loop.

        It is of the same kind: the counterpart of a dry-run session changes nothing either.
        """

    @abstractmethod
    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        """Send a request to "host:port" and return the response, whatever its code.

        Raises:
            ConnectError: the connection failed, or broke before the response arrived.
            RequestTimeout: no response arrived within `timeout` seconds.
            BadAnswer: the peer sent bytes that are not a command.
        """

    @abstractmethod
    async def invoke_oneway(self, address: str, command: Command) -> None:
        """Send a request that has no response. Raises ConnectError if the failure is visible
        locally.
        """

    @abstractmethod
    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Await all coroutines, concurrently if the session can, and return their results in order.

        Raises the first error of any of them.
        """

    def _seal(self, address: str, command: Command) -> None:
        """Complete a request before it is sent to `address`: serialization, hooks, signature.

        Called only if `_seals` is set. Raises HookRefused.
        """
        # Codes over 32767 (POP and related requests) do not fit the binary format.
        if self._serialization and command.code <= _LAST_BINARY_CODE:
            command.serialization = self._serialization
        if self._rpc_hooks is not None:
            for hook in self._rpc_hooks:
                try:
                    hook.before_request(address, command)
                except (KeyboardInterrupt, SystemExit):
                    raise
                # a CancelledError here is the hook's, not this task's
                except BaseException as error:
                    raise HookRefused(hook, error) from error
        if self.credentials is not None:
            self.credentials.sign(command)

    def _responded(self, address: str, command: Command, response: Command) -> None:
        """Pass a response to the hooks. Raises HookRefused."""
        for hook in self._rpc_hooks or ():
            try:
                hook.after_response(address, command, response)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                raise HookRefused(hook, error) from error

    async def call(
        self,
        address: str,
        command: Command,
        timeout: float | None = None,
        *,
        accept: Collection[int] = _SUCCESS,
    ) -> Command:
        """Call `invoke`, and raise the BrokerError for a response code that is not in `accept`."""
        response = await self.invoke(address, command, timeout)
        if response.code not in accept:
            raise for_code(response.code, response.remark, address)
        return response

    async def invoke_name_server(self, command: Command, timeout: float | None = None) -> Command:
        """Send a request to a name server: first the one that answered last, then the others in
        turn.

        Raises the ConnectError or RequestTimeout of the last one if none answers.
        """
        addresses = await self.find_name_servers()
        start = self._chosen_name_server
        last: MQError = ClientError("no name server given")
        for address in addresses[start:] + addresses[:start]:
            try:
                response = await self.invoke(address, command, timeout)
            except (ConnectError, RequestTimeout) as error:
                last = error
                continue
            self._answered(address)
            return response
        raise last

    def _answered(self, address: str) -> None:
        """Start with this name server the next time, if it is still in the list."""
        if address in self.name_servers:
            self._chosen_name_server = self.name_servers.index(address)

    async def call_name_server(
        self,
        command: Command,
        timeout: float | None = None,
        *,
        accept: Collection[int] = _SUCCESS,
    ) -> Command:
        """Call `invoke_name_server`, and raise the BrokerError for a code that is not in
        `accept`.
        """
        response = await self.invoke_name_server(command, timeout)
        if response.code not in accept:
            raise for_code(response.code, response.remark, self.name_server)
        return response

    async def route(self, topic: str, *, max_age: float = ROUTE_SECONDS) -> "TopicRouteData":
        """Return the route of `topic`, fetching it if the cached one is older than `max_age`
        seconds.

        The cached route stays valid while no name server answers, and when a name server that has
        just started does not know the topic yet. With a `max_age` of 0 the route is always fetched.

        Raises:
            RouteNotFound: the name server does not know the topic.
            ConnectError, RequestTimeout: no name server answers and no route is cached.
        """
        known = self._routes.get(topic)
        if known is None or max_age <= 0:
            return await self._fetch_route(topic)
        if clock.monotonic() < known[1] + max_age:
            return known[0]
        try:
            return await self._fetch_route(topic)
        except (ConnectError, RequestTimeout, RouteNotFound):
            # Delay the next attempt, or every call would wait for a name server that hangs.
            self._routes[topic] = known[0], clock.monotonic() - max_age + ROUTE_RETRY_SECONDS
            return known[0]

    async def _fetch_route(self, topic: str) -> "TopicRouteData":
        response, address = await self._ask_for_route(topic)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise RouteNotFound(topic)
        if response.code != ResponseCode.SUCCESS:
            raise for_code(response.code, response.remark, address)
        route = decode_route(response.body, address)
        self._routes[topic] = (route, clock.monotonic())
        return route

    async def _ask_for_route(self, topic: str) -> tuple[Command, str]:
        """Return the response of a name server, and its address."""
        response = await self.invoke_name_server(route_request(topic))
        return response, self.name_server

    async def share_route(self, topic: str, parent: str) -> None:
        """Use the route of `parent` for `topic` from now on: a light topic has no route of its own.

        Raises what `route` raises.
        """
        self._routes[topic] = (await self.route(parent), inf)

    def known_route(self, topic: str) -> "TopicRouteData | None":
        """Return the cached route of `topic` or None, for code that cannot wait."""
        known = self._routes.get(topic)
        return None if known is None else known[0]

    def known_brokers(self, *, replicas: bool = False) -> set[str]:
        """Return the addresses of the masters in all cached routes; with `replicas` those of the
        slaves too.
        """
        return {
            address
            for route, _ in self._routes.values()
            for broker in route.broker_datas
            for broker_id, address in broker.broker_addrs.items()
            if replicas or broker_id == MASTER_ID
        }

    def outdate_route(self, topic: str) -> None:
        """Mark the cached route as outdated: a broker's answer has shown that it may be wrong."""
        known = self._routes.get(topic)
        if known is not None:
            self._routes[topic] = (known[0], -inf)

    async def master_address(self, topic: str, broker_name: str) -> str:
        """Return the address of the master of `broker_name` in the route of `topic`.

        Raises RouteNotFound if the route has no such broker, and what `route` raises.
        """
        address = broker_address(await self.route(topic), broker_name)
        if address is None:
            raise RouteNotFound(topic, f"no broker {broker_name} in its route")
        return address
