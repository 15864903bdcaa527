"""Starts and stops the work of an acting master.

    begin     no living broker of the set has a lower id, and nothing has arrived from the master
              for a while, in case only a name server has lost it
    end       a broker with a lower id is alive, or a master's log arrives, or a master starts
    make way  a starting master asks for the delivery progress, so this ends before it is answered

At the end nothing more is sent, messages in flight are drained, the tasks are cancelled, and the
progress of each duty is saved: the master continues from there.

By heartbeats, name servers notice within seconds that a broker of the replica set is down. The
registration contains the time after which they expect the next one (brokerNotActiveTimeoutMillis).
A name server of 4.9 knows neither heartbeats nor that time, and waits for two minutes.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mq.client.errors import MQError
from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.failover.acting.escape import EscapeBridge
from mq.daemons.broker.failover.acting.members import Members
from mq.daemons.broker.name_servers.name_server_link import NameServerLink
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.supervision import Tasks, Work
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

TICK = 0.5  # seconds between two checks without news
# A master that has announced its start must register within this time; otherwise it was not a
# master.
WAY_SECONDS = 15.0
# Seconds until a duty that could not begin is tried again.
BEGIN_AGAIN_SECONDS = 5.0
# Seconds that callers wait for the end at most.
END_SECONDS = 10.0


class Heartbeats:
    """Sends heartbeats to the name servers with which the broker is registered: `run`, until
    cancelled.
    """

    def __init__(self, settings: BrokerSettings, registration: Registration) -> None:
        self._settings = settings
        self._registration = registration

    async def run(self) -> None:
        broker = self._settings.broker
        fields = BrokerHeartbeatRequestHeader(
            cluster_name=broker.broker_cluster_name,
            broker_addr=self._registration.address,
            broker_name=broker.broker_name,
        ).encode()
        while True:
            await asyncio.sleep(broker.broker_heartbeat_interval / 1000)
            await asyncio.gather(*(self._send(link, fields) for link in self._registration.links()))

    async def _send(self, link: NameServerLink, fields: dict[str, str]) -> None:
        if link.answers and link.session.is_connected(link.address):
            with contextlib.suppress(MQError):  # the link notices the end of the connection itself
                await link.session.invoke_oneway(
                    link.address, Command(RequestCode.BROKER_HEARTBEAT, dict(fields))
                )


class Duty(Protocol):
    """Work that a master does and a slave does not."""

    def begin(self) -> Iterable[tuple[Work, str]]:
        """Continue where the master was; returns the tasks to run until the end. Raises OSError,
        among others: then the duty has not begun, and is not ended.
        """

    async def finish(self) -> None:
        """Reach a state in which the duty can end, by delivering what can still be delivered,
        within a limited time.
        """

    async def end(self) -> None:
        """Save the progress, after the tasks have ended. Raises OSError."""


class ActingMaster:
    """Acts as the master when necessary: `run`, until cancelled; call `stop` before that to end
    cleanly. ``is_acting`` is whether it does, ``began`` how often it has begun.
    """

    def __init__(
        self,
        own_id: int,
        members: Members,
        hears_master: Callable[[], bool],
        duties: Sequence[Duty],
        bridge: EscapeBridge | None,
        tasks: Tasks,
        on_master: Callable[[], None],
    ) -> None:
        """``hears_master`` returns whether a master's log arrives; ``bridge`` is None if duties
        must not deliver. ``on_master`` is called when a master becomes alive, or its address
        changes.
        """
        self.is_acting = False
        self.began = 0
        self._own_id = own_id
        self._members = members
        self._hears_master = hears_master
        self._duties = duties
        self._bridge = bridge
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self._begun: list[Duty] = []
        self._left: list[Duty] = []  # duties that could not begin yet
        self._again_at = 0.0  # monotonic time at which they are tried again
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._way_until = 0.0
        self._on_master = on_master
        self._master: str | None = None  # its address
        members.changed = self._members_changed

    async def run(self) -> None:
        try:
            while True:
                self._news.clear()
                needed = self._is_needed()
                if needed and not self.is_acting:
                    self._begin()
                elif self.is_acting and not needed:
                    await self._end()
                elif self._left and clock.monotonic() >= self._again_at:
                    self._begin_left()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK):
                        await self._news.wait()
        finally:
            if self.is_acting:
                await self._end(at_once=True)

    def _members_changed(self) -> None:
        """The living brokers of the set have changed."""
        before, self._master = self._master, (self._members.known or {}).get(MASTER_ID)
        if self._master is not None and self._master != before:
            self._on_master()
        self._news.set()

    def _is_needed(self) -> bool:
        known = self._members.known
        if known is None or self._own_id not in known:  # name servers do not know this broker yet
            return False
        if any(number < self._own_id for number in known):
            if self._way_until < math.inf:
                self._way_until = 0.0  # the announced master is here
            return False
        return clock.monotonic() >= self._way_until and not self._hears_master()

    @property
    def knows_better(self) -> bool:
        """Whether this slave's progress may be ahead of the master's: while it acts, and then until
        the starting master has asked for it and is registered.
        """
        return self.is_acting or clock.monotonic() < self._way_until

    async def make_way(self) -> None:
        """A master starts: stop acting, and return when that is done."""
        await self._end_until(clock.monotonic() + WAY_SECONDS)

    async def stop(self) -> None:
        """Stop acting permanently."""
        await self._end_until(math.inf)

    async def _end_until(self, moment: float) -> None:
        self._way_until = max(self._way_until, moment)
        self._news.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._ended.wait()

    def _begin(self) -> None:
        log.warning("the master is down; this slave is acting master now")
        self.is_acting = True
        self.began += 1
        self._ended.clear()
        if self._bridge is None:
            log.warning("deliveries wait for the master (enableRemoteEscape=false)")
        else:
            self._bridge.open()
        self._left = list(self._duties)
        self._begin_left()

    def _begin_left(self) -> None:
        """Begin the duties that have not begun. An error of one does not affect the others; it is
        retried later.
        """
        left, self._left = self._left, []
        self._again_at = clock.monotonic() + BEGIN_AGAIN_SECONDS
        for duty in left:
            try:
                works = list(duty.begin())
            except Exception as error:
                self._tasks.failed(f"acting: {type(duty).__name__}", error)
                self._left.append(duty)
                continue
            self._begun.append(duty)
            for work, name in works:
                self._running.append(self._tasks.spawn(work, f"acting: {name}"))

    async def _end(self, *, at_once: bool = False) -> None:
        """Stop. An error of one duty does not affect the others."""
        self._left = []
        if not at_once:
            await asyncio.gather(*(duty.finish() for duty in self._begun))
        if self._bridge is not None:
            await self._bridge.drain()
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        begun, self._begun = self._begun, []
        for duty in reversed(begun):
            try:
                await duty.end()
            except Exception as error:
                self._tasks.failed(f"acting: {type(duty).__name__}", error)
        self.is_acting = False
        self._ended.set()
        log.warning("this slave is no longer acting master")
