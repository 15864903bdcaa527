"""Sessions: what each can do, whichever way it does its I/O.

`Session` waits on an event loop. `BlockingSession` blocks on a socket inside its coroutines, so
that a short command needs no event loop at all (importing asyncio takes longer than the command).
Everything above them (`Admin`, `PullConsumer`) is written once, against `Caller`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack, cast

from mq.client.address_server import fetch_text, is_url
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
from mq.client.routes import broker_address, decode_route
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.credentials import AccessKey
    from mq.protocol.bodies import TopicRouteData

T = TypeVar("T")

_SUCCESS = frozenset((int(ResponseCode.SUCCESS),))
# Java's clients ask for a route again after this long (ClientConfig.pollNameServerInterval).
ROUTE_SECONDS = 30.0
# A route that could not be had is asked for again after this long at the soonest.
ROUTE_RETRY_SECONDS = 0.5
_LAST_BINARY_CODE = 0x7FFF


class Endpoint(NamedTuple):
    """Where to connect: a host name or address, and a port."""

    host: str
    port: int


def parse_address(address: str) -> Endpoint:
    """Split "host:port"; an IPv6 host may stand in brackets.

    Raises ClientError if it is not an address.
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
    """Whether the system takes a host for a look-up, which raises ValueError for others."""
    if any(c.isspace() or c in "\0/,;#" for c in host):
        return False
    if host.isascii():
        return all(0 < len(part) < 64 for part in host.removesuffix(".").split("."))
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def parse_name_servers(namesrv: str | Sequence[str]) -> tuple[str, ...]:
    """Split a list as NAMESRV_ADDR has it, "host:port;host:port" (or commas).

    Raises ClientError if there is none, or one that is not host:port.
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
    """Sends requests to brokers and name servers, and knows the routes of topics."""

    #: Whether several requests can wait side by side, on an event loop.
    is_concurrent = False

    def __init__(
        self,
        namesrv: str | Sequence[str],
        options: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """`options`, and keywords that are fields of them, say how (see `ClientOptions`).

        `namesrv` may be the URL of an address server, http or https, which has the list.
        Raises ClientError for invalid addresses, and for a ROCKETMQ_SERIALIZE_TYPE that is
        no serialization.
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
        #: Empty until it is needed when an address server has the list.
        self.name_servers = () if self.address_server else parse_name_servers(namesrv)
        self._routes: dict[str, tuple[TopicRouteData, float]] = {}
        self._chosen_name_server = 0

    @property
    def credentials(self) -> "AccessKey | None":
        """What requests are signed with from now on; it can be another one, or none."""
        return self._credentials

    @credentials.setter
    def credentials(self, key: "AccessKey | None") -> None:
        self._credentials = key
        # Whether there is anything to do to a request: one look on the hot path.
        self._seals = bool(self._serialization or self._rpc_hooks or key)

    def options_for(
        self, client: ClientOptions | None, keywords: "dict[str, Any]"
    ) -> ClientOptions:
        """The options of somebody who shares this session: its own, if nothing else is said.

        Raises ClientError for an RpcHook that this session was not opened with.
        """
        options = take(client or self.options, keywords)
        for hook in of_kind(options.hooks, RpcHook) or ():
            if hook not in self.options.hooks:
                raise ClientError(
                    f"{type(hook).__name__} is around requests: give it to the session"
                )
        return options

    def set_name_servers(self, namesrv: str | Sequence[str]) -> None:
        """From now on ask these. Raises ClientError for invalid addresses."""
        addresses = parse_name_servers(namesrv)
        chosen = self.name_servers[self._chosen_name_server] if self.name_servers else None
        self.name_servers = addresses
        self._chosen_name_server = addresses.index(chosen) if chosen in addresses else 0

    async def find_name_servers(self) -> tuple[str, ...]:
        """The name servers; asks the address server if there is one and it was not asked yet.

        Raises ConnectError and BadAnswer, naming the address server.
        """
        if not self.name_servers and self.address_server is not None:
            await self.ask_address_server()
        return self.name_servers

    async def ask_address_server(self) -> None:
        """Take the list that the address server has now. Raises as `find_name_servers`."""
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
        """Whom it asks at the moment: a name server, or the address server while it has none."""
        if self.name_servers:
            return self.name_servers[self._chosen_name_server]
        return self.address_server or ""

    @abstractmethod
    def blocking(self) -> "AbstractContextManager[Caller]":
        """A session to the same cluster for another thread, without an event loop.

        Of the same kind: beside one that changes nothing (a dry run's) it changes nothing, too.
        """

    @abstractmethod
    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        """Send a request to "host:port" and return the response, whatever its code.

        Raises:
            ConnectError: no connection, or it broke before the answer came.
            RequestTimeout: no answer within `timeout` seconds.
            BadAnswer: the peer sent bytes that are no command.
        """

    @abstractmethod
    async def invoke_oneway(self, address: str, command: Command) -> None:
        """Send a request that nobody answers. Raises ConnectError as far as that is seen."""

    @abstractmethod
    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Await them all, side by side where the session can, and return their results in order.

        Raises the first error of any of them.
        """

    def _seal(self, address: str, command: Command) -> None:
        """The last that is done to a request before it goes to `address`, if `_seals`.

        Raises HookRefused.
        """
        # Codes over 32767 (POP and its kin) do not fit the binary form.
        if self._serialization and command.code <= _LAST_BINARY_CODE:
            command.serialization = self._serialization
        if self._rpc_hooks is not None:
            for hook in self._rpc_hooks:
                try:
                    hook.before_request(address, command)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # a CancelledError is of something else than we
                    raise HookRefused(hook, error) from error
        if self.credentials is not None:
            self.credentials.sign(command)

    def _responded(self, address: str, command: Command, response: Command) -> None:
        """Let the hooks see a response. Raises HookRefused."""
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
        """`invoke` that raises the BrokerError of each response code not in `accept`."""
        response = await self.invoke(address, command, timeout)
        if response.code not in accept:
            raise for_code(response.code, response.remark, address)
        return response

    async def invoke_name_server(self, command: Command, timeout: float | None = None) -> Command:
        """Send a request to a name server: the one that answered last, else the next in turn.

        Raises ConnectError or RequestTimeout of the last one tried when none answers.
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
        """Ask this name server first the next time, if it still is one of ours."""
        if address in self.name_servers:
            self._chosen_name_server = self.name_servers.index(address)

    async def call_name_server(
        self,
        command: Command,
        timeout: float | None = None,
        *,
        accept: Collection[int] = _SUCCESS,
    ) -> Command:
        """`invoke_name_server` that raises the BrokerError of a code not in `accept`."""
        response = await self.invoke_name_server(command, timeout)
        if response.code not in accept:
            raise for_code(response.code, response.remark, self.name_server)
        return response

    async def route(self, topic: str, *, max_age: float = ROUTE_SECONDS) -> "TopicRouteData":
        """Return the route of `topic`, asked for again when it is older than `max_age` seconds.

        A route that is known already stays good while no name server answers, and when one that has
        just started does not know the topic (yet); not so with a `max_age` of 0.

        Raises:
            RouteNotFound: the name server does not know the topic.
            ConnectError, RequestTimeout: no name server answers and no route is known.
        """
        known = self._routes.get(topic)
        if known is None or max_age <= 0:
            return await self._fetch_route(topic)
        if clock.monotonic() < known[1] + max_age:
            return known[0]
        try:
            return await self._fetch_route(topic)
        except (ConnectError, RequestTimeout, RouteNotFound):
            # Not at once again, or each call would wait for a name server that hangs.
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
        """The answer of a name server, and its address."""
        response = await self.invoke_name_server(route_request(topic))
        return response, self.name_server

    async def share_route(self, topic: str, parent: str) -> None:
        """From now on take the route of `parent` for `topic`: a light topic has none of its own.

        Raises what `route` raises.
        """
        self._routes[topic] = (await self.route(parent), inf)

    def known_route(self, topic: str) -> "TopicRouteData | None":
        """The route of `topic` if it has been asked for already; for paths that cannot wait."""
        known = self._routes.get(topic)
        return None if known is None else known[0]

    def known_brokers(self, *, replicas: bool = False) -> set[str]:
        """The addresses of the masters of every route that is known, and of `replicas` if asked."""
        return {
            address
            for route, _ in self._routes.values()
            for broker in route.broker_datas
            for broker_id, address in broker.broker_addrs.items()
            if replicas or broker_id == MASTER_ID
        }

    def outdate_route(self, topic: str) -> None:
        """Ask again the next time: a broker has just proved that the route may be old."""
        known = self._routes.get(topic)
        if known is not None:
            self._routes[topic] = (known[0], -inf)

    async def master_address(self, topic: str, broker_name: str) -> str:
        """Return the address of the master called `broker_name` in the route of `topic`.

        Raises RouteNotFound if the route has no such broker, and what `route` raises.
        """
        address = broker_address(await self.route(topic), broker_name)
        if address is None:
            raise RouteNotFound(topic, f"no broker {broker_name} in its route")
        return address
