"""A read-only session that limits the requests per second to each peer.

All requests of the collector use such sessions, so that the load of a broker does not depend on the
size of the cluster or the number of users.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from mq.client.errors import ClientError
from mq.client.options import ClientOptions
from mq.daemons.console.collector.limits import Limits
from mq.daemons.console.guarded_session import LimitedSession
from mq.protocol.codes import kind_of
from mq.protocol.command import Command
from mq.protocol.requests import RequestKind

# Requests per second of the collector and the check-up to one peer: 30 in total.
COLLECTOR_RATE = 26.0
CHECKUP_RATE = 4.0
# Routes of a check-up are not updated: its session ends earlier.
_NEVER = 86_400.0
_MOST_PEERS = 1000  # peers whose next turn is kept; those without recent turns are removed


class Pace:
    """Evenly spaced turns for each address. A cancelled turn is not used by others."""

    def __init__(self, rate: float) -> None:
        """`rate` is in turns per second."""
        self._gap = 1 / rate
        self._free: dict[str, float] = {}  # when the next turn may start

    async def turn(self, address: str) -> None:
        """Wait for the next turn of a peer."""
        now = asyncio.get_running_loop().time()
        if len(self._free) > _MOST_PEERS:
            self._free = {peer: at for peer, at in self._free.items() if at > now}
        at = max(now, self._free.get(address, now))
        self._free[address] = at + self._gap
        if at > now:
            await asyncio.sleep(at - now)


class NotARead(ClientError):
    """A request that is not a read was refused before it was sent."""

    def __init__(self, code: int) -> None:
        super().__init__(f"request {code} may change something: the collector only reads")


class PacedSession(LimitedSession):
    """A Session that sends only reads, in turns."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        options: ClientOptions | None,
        pace: Pace,
        limits: Limits | None = None,
    ) -> None:
        """Connections to peers other than name servers must be allowed by `limits`."""
        super().__init__(name_servers, options, route_interval=_NEVER)
        self._pace = pace
        self.refused = (limits or Limits()).refused

    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        await self._pace.turn(address)
        return await super().invoke(address, command, timeout)

    def request(
        self,
        address: str,
        command: Command,
        timeout: float | None = None,
        convert: Callable[[Command], Any] | None = None,
    ) -> "asyncio.Future[Any]":
        if kind_of(command.code) is not RequestKind.READ:
            raise NotARead(command.code)
        return super().request(address, command, timeout, convert)

    def send_oneway(self, address: str, command: Command) -> Any:
        raise NotARead(command.code)
