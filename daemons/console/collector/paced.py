"""A session that only reads, and gives no peer more than so many requests a second.

Whatever the collector asks goes through such sessions, so that the load of a broker does not
depend on how much is watched, or by how many people.
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

#: The collector's and the check-up's requests to one peer, a second: 30 together.
COLLECTOR_RATE = 26.0
CHECKUP_RATE = 4.0
# Routes that a check-up asks for are not kept up to date: its session does not live so long.
_NEVER = 86_400.0
_MOST_PEERS = 1000  # whose turns are remembered; those that have had none lately are forgotten


class Pace:
    """Turns, one after the other for each address. Who goes away loses his turn."""

    def __init__(self, rate: float) -> None:
        """`rate` in turns a second."""
        self._gap = 1 / rate
        self._free: dict[str, float] = {}  # when the next turn may begin

    async def turn(self, address: str) -> None:
        """Wait until it is our turn to ask a peer."""
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
    """A Session whose requests are reads, and take turns."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        options: ClientOptions | None,
        pace: Pace,
        limits: Limits | None = None,
    ) -> None:
        """Peers beside the name servers are connected to as far as `limits` allow it."""
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
