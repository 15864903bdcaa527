"""The shared part of TubeMQ clients: connections, names of masters, a number for each client.

A client creates a service of its own unless it is given one. A shared service is opened and closed
by its creator; closing it closes its clients, too, and it cannot be opened again.

Host names of masters: resolved when they are new, and periodically.

A host is a name if it starts with a letter (Utils::NeedDnsXfs); others are addresses. A failed
lookup keeps the previous address: the original then uses the name itself, which its connect cannot
handle.
"""

import asyncio
import logging
from collections.abc import Coroutine
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self

from mq.client.errors import ClientError
from mq.client.transport import session
from mq.client.transport.caller import Endpoint
from mq.client.transport.tasks import Closing
from mq.client.tube.connection import TubeConnection
from mq.client.tube.service_config import LOGGER, ServiceConfig
from mq.protocol.tube.codes import Method
from mq.protocol.tube.strings import Address

if TYPE_CHECKING:
    import ssl
import socket
from collections.abc import Awaitable, Callable, Iterable

log = logging.getLogger(__name__)

Resolve = Callable[[str], Awaitable[str | None]]

IDLE_SECONDS = 180.0  # an unused connection is closed after this time
IDLE_CHECK_SECONDS = 20.0


async def resolve_ipv4(name: str) -> str | None:
    """Return an IPv4 address of a host; None if none is available now."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # ValueError for an invalid name
        log.warning("cannot resolve %s: %s", name, error)
        return None
    return str(found[0][4][0]) if found else None


def is_name(host: str) -> bool:
    """Whether the host must be resolved."""
    return host[:1].isalpha() and ":" not in host


class Names:
    """The watched names, and their addresses."""

    def __init__(self, resolve: Resolve = resolve_ipv4) -> None:
        self._resolve = resolve
        self._addresses: dict[str, str] = {}
        self._watched: dict[str, None] = {}

    def address(self, host: str) -> str:
        """Return the current address of a host; the host itself if it is unknown."""
        return self._addresses.get(host, host)

    async def watch(self, hosts: Iterable[str]) -> None:
        """Resolve the new names among these, and watch them."""
        new = [host for host in dict.fromkeys(hosts) if is_name(host) and host not in self._watched]
        self._watched.update(dict.fromkeys(new))
        await asyncio.gather(*map(self._look_up, new))

    async def look_up(self) -> None:
        """Resolve all watched names again."""
        await asyncio.gather(*map(self._look_up, list(self._watched)))

    async def _look_up(self, name: str) -> None:
        address = await self._resolve(name)
        if address is None:
            return
        before = self._addresses.get(name)
        self._addresses[name] = address
        if before not in (None, address):
            log.info("address of %s changed from %s to %s", name, before, address)


class ServiceClient(Protocol):
    """The operations of a client that its service uses."""

    async def close(self) -> None: ...


class TubeService:
    """A service, opened and closed by its user, or used in an `async with` block.

    `config` is a `ServiceConfig`; `ServiceConfig.read` reads the C++ client's file. `resolve`
    replaces the system's name resolution.
    """

    def __init__(
        self, config: ServiceConfig | None = None, *, resolve: Resolve = resolve_ipv4
    ) -> None:
        self.config = config or ServiceConfig()
        self.names = Names(resolve)
        self._clients: dict[int, ServiceClient] = {}
        self._indices = count(1)
        # By address and, with TLS, by the name in the certificate.
        self._connections: dict[tuple[Address, str, ssl.SSLContext | None], TubeConnection] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._log: logging.Handler | None = None
        self._close_once = Closing()
        self._state = "new"

    @property
    def is_running(self) -> bool:
        """Whether it was opened and not closed since."""
        return self._state == "running"

    async def open(self) -> None:
        """Start the service. Safe to call again. Raises ClientError after a close."""
        if self._state == "closed":
            raise ClientError("the TubeMQ service was closed: create another one")
        if self._state == "new":
            self._log = self.config.open_log()
            self._state = "running"
            self.keep_task(self._look_up_names())
            self.keep_task(self._close_idle())

    async def close(self) -> None:
        """Close its clients and connections. Safe to call again. Raises what a client raises."""
        await self._close_once.run(self._close)

    async def _close(self) -> None:
        closing = [client.close() for client in list(self._clients.values())]
        results = await asyncio.gather(*closing, return_exceptions=True)
        self._state = "closed"
        await self._close_parts()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _close_parts(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()
        if self._log is not None:
            logging.getLogger(LOGGER).removeHandler(self._log)
            self._log.close()
            self._log = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def add(self, client: ServiceClient) -> int:
        """Register a client; returns its number. Raises ClientError unless the service runs."""
        if not self.is_running:
            raise ClientError("the TubeMQ service is not running: open it first")
        index = next(self._indices)
        self._clients[index] = client
        return index

    def remove(self, index: int) -> None:
        self._clients.pop(index, None)

    def keep_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a background task that ends with the service at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def call(
        self,
        address: Address,
        method: Method,
        body: bytes,
        timeout: float,
        *,
        connect_timeout: float,
        tls: "ssl.SSLContext | None" = None,
    ) -> bytes:
        """Send a request to a server, and return its answer.

        Raises ConnectError, RequestTimeout, BadAnswer, RemoteFailure, and ClientError if the
        service does not run.
        """
        connection = self.connection(address, connect_timeout=connect_timeout, tls=tls)
        return await connection.call(method, body, timeout)

    def connection(
        self, address: Address, *, connect_timeout: float, tls: "ssl.SSLContext | None" = None
    ) -> TubeConnection:
        """Return the connection to a server; it may not be established yet.

        Raises ClientError if the service does not run.
        """
        if not self.is_running:
            raise ClientError("the TubeMQ service is not running")
        target = Address(self.names.address(address.host), address.port)
        key = target, "" if tls is None else address.host, tls
        connection = self._connections.get(key)
        if connection is None or connection.has_ended:
            connection = TubeConnection(
                str(target), tls=tls, tls_name=address.host, connect_timeout=connect_timeout
            )
            self._connections[key] = connection
        return connection

    def own_host(self, towards: Address) -> str:
        """Return this machine's address towards a peer."""
        return session.own_host(Endpoint(self.names.address(towards.host), towards.port))

    async def _look_up_names(self) -> None:
        while True:
            await asyncio.sleep(self.config.dns_period)
            try:
                await self.names.look_up()
            except Exception:
                log.exception("cannot resolve the names of masters")

    async def _close_idle(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(IDLE_CHECK_SECONDS)
            for key, connection in list(self._connections.items()):
                if connection.has_ended or connection.idle_since < clock() - IDLE_SECONDS:
                    connection.close()
                    del self._connections[key]
