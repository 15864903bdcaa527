"""The common base of the groups of administrative calls."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from mq.client.errors import BadAnswer, NoPermission, RouteNotFound, SettingRefused
from mq.client.routing.routes import any_broker
from mq.client.transport.caller import Caller
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.protocol.headers import Header

T = TypeVar("T")
F = TypeVar("F")

_SUCCESS = frozenset((int(ResponseCode.SUCCESS),))


def read(decode: Callable[[F], T], encoded: F, address: str) -> T:
    """Decode a part of an answer. Raises BadAnswer, with `address`, if it cannot be decoded."""
    try:
        return decode(encoded)
    except RemoteProtocolError as error:
        raise BadAnswer(address, str(error)) from None


class AdminBase:
    """Sends requests through a session."""

    def __init__(self, session: Caller, *, timeout: float | None = None) -> None:
        """`timeout` is in seconds per request; by default the session's."""
        self.session = session
        self.timeout = timeout

    async def _ask(
        self,
        address: str,
        request: "Header | RequestCode | SnodeCode",
        body: bytes = b"",
        *,
        accept: Collection[int] = _SUCCESS,
        timeout: float | None = None,
    ) -> Command:
        seconds = timeout or self.timeout
        return await self.session.call(address, _command(request, body), seconds, accept=accept)

    async def _update_config(
        self, address: str, code: RequestCode, changes: Mapping[str, str]
    ) -> str:
        """Change settings of a peer; returns its remark about them, or "".

        Raises ValueError for a line break, and SettingRefused.
        """
        try:
            return (await self._ask(address, code, format_config(changes))).remark or ""
        except NoPermission as error:
            raise SettingRefused(error.remark, error.address) from error

    async def _ask_name_server(
        self, request: "Header | RequestCode | SnodeCode", body: bytes = b""
    ) -> tuple[Command, str]:
        response = await self.session.call_name_server(_command(request, body), self.timeout)
        return response, "name server"

    async def _brokers_of(self, topic: str) -> list[str]:
        """Return one address per broker name in the route of `topic`, of the master if there is
        one.
        """
        route = await self.session.route(topic)
        found = []
        for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name):
            address = _master_or_any(broker.broker_addrs)
            if address is not None:
                found.append(address)
        if not found:
            raise RouteNotFound(topic, "its route has no broker")
        return found

    async def _every_broker(self) -> list[str]:
        """Return one address per broker name of all clusters, of the master if there is one.

        Raises RouteNotFound if there is none.
        """
        from mq.protocol import bodies

        response, address = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        table = read(bodies.ClusterInfo.decode, response.body, address).broker_addr_table
        found = [_master_or_any(table[name].broker_addrs) for name in sorted(table)]
        if addresses := [one for one in found if one is not None]:
            return addresses
        raise RouteNotFound("any topic", "no broker is registered")

    async def _any_broker_of(self, topic: str) -> str:
        route = await self.session.route(topic)
        address = any_broker(route)
        if address is None:
            raise RouteNotFound(topic, "its route has no broker")
        return address


def _master_or_any(addresses: Mapping[int, str]) -> str | None:
    return addresses.get(MASTER_ID) or next(iter(addresses.values()), None)


def _command(request: "Header | RequestCode | SnodeCode", body: bytes) -> Command:
    if isinstance(request, RequestCode | SnodeCode):
        return Command(request, None, body)
    return Command(request.REQUESTS[0], request.encode(), body)


def parse_config(body: bytes | memoryview) -> dict[str, str]:
    """Parse the "key=value" lines with which a daemon reports its configuration."""
    lines = bytes(body).decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def format_config(changes: Mapping[str, str]) -> bytes:
    """Format "key=value" lines. Raises ValueError for a line break, which would add another key."""
    for key, value in changes.items():
        if not key or any(sign in key + value for sign in "\r\n") or "=" in key:
            raise ValueError(f"not a configuration key and value of one line: {key!r}={value!r}")
    return "".join(f"{key}={value}\n" for key, value in changes.items()).encode()
