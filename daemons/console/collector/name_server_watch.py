"""Polls one name server for its brokers."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from mq.client.admin.base import read
from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.operations.cluster_snapshot import RegisteredBroker, registered
from mq.daemons.console.collector.limits import Limits, problem, shortened
from mq.protocol.bodies import ClusterInfo
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

if TYPE_CHECKING:
    from mq.daemons.console.collector.paced import PacedSession

NAME_SERVER_SECONDS = 10.0


class NameServerWatch:
    """The data of a name server; the last ones are kept while it does not answer.

    Attributes:
        seen: time of its last reply in ms; None: never. problem: why the last request failed.
        since: when that began, in ms. brokers: by address, within the limits. refused: number of
        ignored brokers, and the reason for the last one.
    """

    def __init__(
        self,
        session: "PacedSession",
        address: str,
        limits: Limits,
        timeout: float,
        changed: Callable[[], None],
    ) -> None:
        self.address = address
        self.seen: int | None = None
        self.problem: str | None = None
        self.since: int | None = None
        self.response_ms: float | None = None
        self.brokers: dict[str, RegisteredBroker] = {}
        self.refused: tuple[int, str] | None = None
        self._session = session
        self._limits = limits
        self._timeout = timeout
        self._changed = changed

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self._ask()
            self._changed()
            await asyncio.sleep(NAME_SERVER_SECONDS)

    async def _ask(self) -> None:
        began = clock.monotonic()
        try:
            request = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
            response = await self._session.call(self.address, request, self._timeout)
            self._take(read(ClusterInfo.decode, response.body, self.address))
        except MQError as error:
            if self.problem is None:
                self.since = clock.milliseconds()
            self.problem = problem(error, self._timeout)
        else:
            self.response_ms = round((clock.monotonic() - began) * 1000, 1)
            self.seen = clock.milliseconds()
            self.problem = self.since = None

    def _take(self, info: ClusterInfo) -> None:
        found: dict[str, RegisteredBroker] = {}
        left_out, why = 0, ""
        # Known brokers come first: others that register, or an address of another broker, do not
        # displace them.
        known = self.brokers
        for broker in sorted(registered(info), key=lambda one: known.get(one.address) != one):
            reason = self._limits.refused(broker.address)
            if reason is None and max(len(broker.name), len(broker.cluster)) > self._limits.name:
                reason = "its name is too long"
            if reason is None and len(found) >= self._limits.brokers:
                reason = f"there are more than {self._limits.brokers}"
            if reason is None:
                found.setdefault(broker.address, broker)
            else:
                left_out, why = left_out + 1, f"{shortened(broker.address)}: {reason}"
        self.brokers = found
        self.refused = (left_out, why) if left_out else None
