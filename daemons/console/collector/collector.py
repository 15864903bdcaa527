"""Updates the snapshot of a cluster: polls in the background, with a task for each peer.

    name servers   each is asked for the brokers; the union is polled
    brokers        each by its own task (`broker_watch`)
    check-up       the findings of `mq doctor`, slowly and with its own session
    assembling     changed rows become the next snapshot, at most once per second

A hanging peer delays only itself. Data of a failed broker are kept, with their age; a broker that
no name server has is removed after a day.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.operations.doctor.checkup import examine
from mq.client.operations.doctor.examination import Limits as CheckupLimits
from mq.client.operations.doctor.finding import Finding
from mq.client.options import ClientOptions
from mq.daemons.console.collector.assembly import Assembly
from mq.daemons.console.collector.book import BrokerBook
from mq.daemons.console.collector.broker_watch import BrokerWatch, ChangedRows
from mq.daemons.console.collector.limits import Limits
from mq.daemons.console.collector.name_server_watch import NameServerWatch
from mq.daemons.console.collector.paced import (
    CHECKUP_RATE,
    COLLECTOR_RATE,
    Pace,
    PacedSession,
)
from mq.daemons.console.collector.snapshot import Snapshot
from mq.daemons.supervision import Tasks

log = logging.getLogger(__name__)

ANSWER_SECONDS = 2.0
ASSEMBLY_SECONDS = 1.0
CHECKUP_SECONDS = 600.0
# Unregistered brokers are shown for this time.
FORGOTTEN_AFTER = 24 * 3600 * 1000  # ms
_CHECKUP_ANSWER_SECONDS = 5.0
_TASKS = "console collector"


class Collector:
    """An async context manager. `snapshot` always exists; before the first reply it is empty.

    Attributes:
        findings: of the last check-up; None before the first one has finished. findings_at: when
        that finished, in ms.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        options: ClientOptions | None = None,
        *,
        limits: Limits | None = None,
        timeout: float = ANSWER_SECONDS,
        rate: float = COLLECTOR_RATE,
        checkup_seconds: float = CHECKUP_SECONDS,
    ) -> None:
        """`timeout` is in seconds, for one reply; `rate` in requests per second to one peer."""
        self.limits = limits or Limits()
        self.findings: tuple[Finding, ...] | None = None
        self.findings_at: int | None = None
        self._name_servers = name_servers
        self._options = options
        self._timeout = timeout
        self._checkup_seconds = checkup_seconds
        self._session = PacedSession(name_servers, options, Pace(rate), self.limits)
        self._tasks = Tasks()
        self._servers: dict[str, tuple[NameServerWatch, asyncio.Task[None]]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}  # by address
        self._assembly = Assembly(self.limits)
        self._dirty = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._snapshot = Snapshot()
        self._parts = AsyncExitStack()

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self._snapshot

    @property
    def failures(self) -> dict[str, int]:
        """Errors in its own tasks, by task: defects."""
        return {name: one.count for name, one in self._tasks.failures.items()}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as parts:
            await parts.enter_async_context(self._session)
            await parts.enter_async_context(self._tasks)
            self._tasks.spawn(self._assemble, _TASKS)
            self._tasks.spawn(self._follow_name_servers, f"{_TASKS} name servers")
            self._tasks.spawn(self._check_up, f"{_TASKS} check-up")
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()
        if self._next is not None:
            self._next.cancel()

    async def newer(self, than: Snapshot) -> Snapshot:
        """Return the next snapshot after `than`, at once if there is one already."""
        while self._snapshot is than:
            if self._next is None or self._next.done():
                self._next = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next)
        return self._snapshot

    # name servers --------------------------------------------------------------------------------

    async def _follow_name_servers(self) -> None:
        """Update the name servers: the given ones, or those of an address server."""
        while True:
            try:
                addresses = await self._session.find_name_servers()
            except MQError as error:
                log.warning("no name servers: %s", error)
                addresses = ()
            for address in addresses:
                if address not in self._servers:
                    watch = NameServerWatch(
                        self._session,
                        address,
                        self.limits,
                        self._timeout,
                        self._name_server_changed,
                    )
                    task = self._tasks.spawn(watch.run, f"{_TASKS} name server")
                    self._servers[address] = watch, task
            for address in self._servers.keys() - set(addresses) if addresses else ():
                self._servers.pop(address)[1].cancel()
            await asyncio.sleep(10)

    def _name_server_changed(self) -> None:
        self._assembly.name_servers = [watch for watch, _ in self._servers.values()]
        now = clock.milliseconds()
        self._assembly.forget(now - FORGOTTEN_AFTER)
        books = {book.address: book for book in self._assembly.follow(now)}
        for address in self._watches.keys() - books.keys():
            self._watches.pop(address).cancel()
        for address in books.keys() - self._watches.keys():
            self._watch(books[address])
        self._dirty.set()

    # brokers -------------------------------------------------------------------------------------

    def _watch(self, book: BrokerBook) -> None:
        watch = BrokerWatch(
            self._session, book, self.limits, self._timeout, self._assembly.leads, self._changed
        )
        self._watches[book.address] = self._tasks.spawn(watch.run, f"{_TASKS} broker")

    def _changed(self, changed: ChangedRows) -> None:
        self._assembly.topics |= changed.topics
        self._assembly.groups |= changed.groups
        self._dirty.set()

    async def _assemble(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                self._snapshot = await self._assembly.snapshot(clock.milliseconds())
            except BaseException:
                self._dirty.set()  # the changes are not shown yet
                raise
            if self._next is not None and not self._next.done():
                self._next.set_result(None)
            await asyncio.sleep(ASSEMBLY_SECONDS)

    # check-up ------------------------------------------------------------------------------------

    async def _check_up(self) -> None:
        """Run the checks of `mq doctor` repeatedly; the first time when brokers are known."""
        while not self._snapshot.name_servers:
            await self.newer(self._snapshot)
        while True:
            async with self._slow_session() as session:
                found = await examine(session, CheckupLimits(), clock.time())
            self.findings = tuple(sorted(found, key=lambda one: -one.severity))
            self.findings_at = clock.milliseconds()
            self._dirty.set()
            await asyncio.sleep(self._checkup_seconds)

    @asynccontextmanager
    async def _slow_session(self) -> AsyncIterator[PacedSession]:
        addresses = await self._session.find_name_servers()
        session = PacedSession(addresses, self._options, Pace(CHECKUP_RATE), self.limits)
        session.timeout = _CHECKUP_ANSWER_SECONDS
        session.refused = self._refused_in_checkup
        async with session:
            yield session

    def _refused_in_checkup(self, address: str) -> str | None:
        """Return the reason to refuse an address in a check-up.

        Connections stay open during a check-up: their number must not exceed that of polled
        brokers, however many a name server has.
        """
        reason = self.limits.refused(address)
        full = len(self._watches) >= self.limits.brokers
        if reason is None and full and address not in self._watches:
            reason = f"it is not polled: there are more than {self.limits.brokers} brokers"
        return reason
