"""A TubeMQ master: its parts, started in order and stopped in reverse.

storage      keeps the records; for a set of masters in etcd, which also elects the active one
catalog      the records in memory, changed one at a time
core         the live nodes and their partitions
listener     serves producers, consumers and brokers
web          serves administrators
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mq.daemons import exporters
from mq.daemons.config import ConfigError
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.memory import MemoryBudget
from mq.daemons.service import CannotStart
from mq.daemons.supervision import Tasks
from mq.daemons.tube.master.admin.table import WebApi
from mq.daemons.tube.master.balance_rounds import balance_all
from mq.daemons.tube.master.catalog import Catalog
from mq.daemons.tube.master.certificates import Certificates, read_accounts
from mq.daemons.tube.master.config import MasterSettings
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.requests.table import routes
from mq.daemons.tube.master.storage import EtcdStorage, SqliteStorage, Storage, StorageError
from mq.daemons.tube.rpc import RpcListener
from mq.daemons.tube.web import WebServer

if TYPE_CHECKING:
    from mq.daemons.controller.leadership import Leadership
    from mq.daemons.metrics import Metric
from collections.abc import Sequence

from mq.daemons.metrics import Kind, Metric, counter, gauge, of_tasks

log = logging.getLogger(__name__)

# Interval of checks for expired nodes (HeartbeatManager).
_SCAN_SECONDS = 1.0
# Interval of checks whether a write has an unknown outcome.
_DOUBT_SECONDS = 0.5

METADATA = "metadata.sqlite"


def metrics_of(core: Core, tasks: Tasks, ports: Sequence[RpcListener]) -> Iterator[Metric]:
    """Return all of them. Those of clients are from the active master."""
    active = core.is_active()
    yield of_tasks(tasks)
    yield gauge("mq_tube_master_active", "1 while this master is the active one.", float(active))
    yield gauge("mq_connections", "Open connections.", sum(len(p.channels) for p in ports))
    yield counter("mq_tube_requests_total", "Requests.", sum(p.counters["requests"] for p in ports))
    causes = sorted({cause for port in ports for cause in port.counters} - {"requests"})
    yield Metric(
        "mq_tube_bad_requests_total",
        Kind.counter,
        "Malformed or refused requests and connections, by cause.",
        ("cause",),
        [((cause,), float(sum(p.counters[cause] for p in ports))) for cause in causes],
    )
    yield gauge("mq_tube_brokers", "Live brokers.", len(core.brokers.runs))
    yield gauge("mq_tube_producers", "Live producers.", len(core.producers))
    yield gauge("mq_tube_consumers", "Live consumers.", core.groups.members())
    yield gauge("mq_tube_groups", "Consumer groups that have members.", len(core.groups))
    yield Metric(
        "mq_tube_expired_total",
        Kind.counter,
        "Clients and brokers that timed out.",
        ("kind",),
        [((kind,), float(count)) for kind, count in core.expired.items()],
    )
    yield counter("mq_tube_rounds_total", "Rebalances of partitions.", core.rounds_in_all)
    yield counter(
        "mq_tube_events_total", "Events sent to members of consumer groups.", core.events_made
    )
    yield counter(
        "mq_tube_events_done_total", "Events that members have completed.", core.events_done
    )
    yield counter("mq_tube_changes_total", "Changes to metadata.", core.catalog.changes)
    yield gauge(
        "mq_tube_metadata_known",
        "0 while the outcome of a metadata write is unknown, else 1.",
        float(core.catalog.is_known or not active),
    )


class Master(Lifecycle):
    """A master in this process: `async with Master(settings) as master`.

    With port 0 a free port is chosen; ``port`` is the actual one. Raises OSError if it cannot
    listen, CannotStart if its metadata cannot be read, ConfigError.
    """

    def __init__(self, settings: MasterSettings) -> None:
        self.settings = settings
        self.tasks: Tasks
        self.catalog: Catalog
        self.core: Core
        self.listener: RpcListener
        self.tls_listener: RpcListener | None = None
        self.web: WebServer | None = None
        self.leadership: Leadership | None = None  # only in a set
        self.metrics_port = -1  # none

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def address(self) -> str:
        """host:port for clients, brokers and other masters."""
        return f"{self.settings.master.host_name}:{self.port}"

    @property
    def web_port(self) -> int:
        """The port for administrators; -1 for none."""
        return self.web.port if self.web is not None else -1

    @property
    def is_active(self) -> bool:
        """Whether this master is active: it is alone, or was elected."""
        return self.leadership is None or self.leadership.leads

    async def _start(self, parts: AsyncExitStack) -> None:
        settings, config = self.settings, self.settings.master
        operation = settings.operation
        memory = MemoryBudget(
            lambda: settings.operation.connection_memory_max_bytes,
            lambda: settings.operation.client_memory_max_bytes,
        )
        host = settings.listen_host()
        self.listener = RpcListener(
            {}, host, config.port, memory=memory, max_connections=self._most_connections
        )
        await self.listener.bind()
        parts.push_async_callback(self.listener.close)
        storage = await self._storage(parts)
        self.catalog = Catalog(storage)
        self.tasks = await parts.enter_async_context(Tasks())
        parts.push_async_callback(self._finish_changes)
        self.core = Core(
            config,
            self.catalog,
            _certificates(settings),
            is_active=lambda: self.is_active,
            address=lambda: self.address,
            spawn=self.tasks.spawn,
        )
        self.listener.routes = routes(self.core)
        if config.web_port >= 0:
            api = WebApi(self.core, config.conf_mod_auth_token, self._active_web)
            self.web = await parts.enter_async_context(WebServer(host, config.web_port, api.paths))
        if self.leadership is None:
            try:
                await self.catalog.load()
            except StorageError as error:
                raise CannotStart(str(error)) from None
        else:
            work = self.tasks.spawn(self.leadership.work, "leadership")
            parts.push_async_callback(self._give_up, work)
        await self._listen_by_tls(parts, host, memory)
        await parts.enter_async_context(self.listener)
        self.tasks.spawn(self._expire, "expiry")
        self.tasks.spawn(self._balance, "balance")
        self.tasks.spawn(self._renew_tokens, "visit tokens")
        self.tasks.spawn(self._settle_doubts, "doubtful writes")
        if exporters.are_wanted(operation):
            self.metrics_port = await exporters.start_exporters(
                operation, self.metrics, self.tasks, parts
            )

    def _most_connections(self) -> int:
        return self.settings.operation.max_connections

    async def _storage(self, parts: AsyncExitStack) -> Storage:
        config = self.settings.master
        if not config.master_group:
            path = Path(config.meta_data_path) / METADATA
            return await parts.enter_async_context(SqliteStorage(path))
        from mq.daemons.controller.etcd import client_of
        from mq.daemons.controller.leadership import Leadership

        etcd = await parts.enter_async_context(client_of(self.settings.etcd))
        prefix = f"{self.settings.etcd.etcd_prefix}/{config.master_group}/"
        self.leadership = Leadership(
            etcd,
            prefix,
            address=self.address,
            seconds=self.settings.etcd.leader_lease_seconds,
            on_lead=self._begin_to_lead,
            kind="master",
            details=lambda: {"web": f"{config.host_name}:{self.web_port}"},
        )
        return EtcdStorage(etcd, f"{prefix}records/", self.leadership)

    async def _begin_to_lead(self) -> None:
        """Load the records of the last active master. Raises EtcdError: then another may try."""
        from mq.daemons.controller.etcd import EtcdError

        try:
            await self.catalog.load()
        except StorageError as error:
            raise EtcdError(str(error)) from None
        self.core.forget()

    async def _give_up(self, leading: "asyncio.Task[None]") -> None:
        """Let another master become active, and do not try again while this one stops."""
        assert self.leadership is not None
        leading.cancel()
        await asyncio.wait([leading])
        await self.leadership.give_up()

    async def _finish_changes(self) -> None:
        await self.catalog.finish()

    async def _listen_by_tls(self, parts: AsyncExitStack, host: str, memory: MemoryBudget) -> None:
        config = self.settings.master
        if not config.tls_enable:
            return
        self.tls_listener = RpcListener(
            routes(self.core),
            host,
            config.tls_port,
            tls=self.settings.tls.server_context(),
            memory=memory,
            max_connections=self._most_connections,
        )
        await parts.enter_async_context(self.tls_listener)

    def _active_web(self) -> str:
        """Return host:port of the active master for administrators; "" if it is unknown."""
        if self.leadership is None:
            return ""
        return str(self.leadership.leader_details.get("web", "")) if self.leadership.leader else ""

    # what goes on by itself -----------------------------------------------------------------------

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_SCAN_SECONDS)
            if self.is_active:
                self.core.expire()

    async def _balance(self) -> None:
        period = self.settings.master.consumer_balance_period_ms / 1000
        while True:
            await asyncio.sleep(period)
            # A round just after becoming active would assign partitions of members which have not
            # registered again.
            while self.core.now() < self.core.since + period:  # noqa: ASYNC110
                await asyncio.sleep(self.core.since + period - self.core.now())
            if self.is_active:
                balance_all(self.core)

    async def _renew_tokens(self) -> None:
        while True:
            await asyncio.sleep(self.core.tokens.period)
            self.core.tokens.renew()

    async def _settle_doubts(self) -> None:
        while True:
            await asyncio.sleep(_DOUBT_SECONDS)
            if self.is_active:
                try:
                    await self.catalog.settle()
                except StorageError as error:
                    log.error("metadata is unknown: %s", error, extra={"failure": "metadata"})

    # what it says of itself -----------------------------------------------------------------------

    def ready_text(self) -> str:
        """Return the log line for a ready master, with its addresses."""
        web = f", web {self.web.host}:{self.web.port}" if self.web is not None else ""
        return f"The TubeMQ master serves at {self.listener.host}:{self.port}{web}"

    def status_text(self) -> str:
        if not self.is_active:
            assert self.leadership is not None
            return (
                f"{self.ready_text()}; standby, {self.leadership.leader or 'no master'} is active"
            )
        core = self.core
        return (
            f"{self.ready_text()}; {len(core.brokers.runs)} brokers, {core.groups.members()} "
            f"consumers, {len(core.producers)} producers"
        )

    def reload(self) -> None:
        """Read the accounts again."""
        path = self.settings.master.accounts_file
        try:
            self.core.certificates.accounts = read_accounts(path)
        except ConfigError as error:
            log.error("the accounts are unchanged: %s", error)

    def metrics(self) -> Iterator["Metric"]:
        """Return its metrics."""

        ports = [port for port in (self.listener, self.tls_listener) if port is not None]
        return metrics_of(self.core, self.tasks, ports)

    def state(self) -> Iterator[str]:
        """Yield lines about its state."""
        from mq.daemons.state_dump import limited  # rarely needed

        core = self.core
        yield self.status_text()
        yield f"connections: {len(self.listener.channels)}"
        yield from self.tasks.state()
        for run in core.brokers.alive():
            yield f"broker {run.broker}: {run.step.text}, {len(run.topics)} topics"
        groups = [
            f"group {group.name}: {len(group.members)} members, "
            f"{sum(len(m.held or ()) for m in group.members.values())} partitions held, "
            f"{len(list(group.events.pending()))} members with events"
            for group in core.groups
        ]
        yield f"groups: {len(groups)}"
        yield from limited(groups, "groups")


def _certificates(settings: MasterSettings) -> Certificates:
    config = settings.master
    return Certificates(
        asks_producers=config.start_produce_authenticate,
        asks_consumers=config.start_consume_authenticate,
        accounts=read_accounts(config.accounts_file),
        broker=config.broker_account(),
        valid_ms=config.auth_valid_time_stamp_period_ms,
        token_ms=config.visit_token_valid_period_ms,
    )
