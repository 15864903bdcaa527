"""A controller: starts its components in order and stops them in reverse order.

etcd       stores the replica sets and the leader (`registry.py`, `leadership.py`)
liveness   the heartbeats that brokers send to every controller
elections  held by the controller leader
listener   serves requests of brokers and administrators
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from mq.client.transport.session import Session
from mq.daemons import exporters
from mq.daemons.controller.config import ControllerSettings
from mq.daemons.controller.elections import Elections
from mq.daemons.controller.etcd import Etcd, EtcdError, client_of
from mq.daemons.controller.handlers import AdminHandlers, MembershipHandlers
from mq.daemons.controller.leadership import Leadership
from mq.daemons.controller.liveness import Liveness
from mq.daemons.controller.registry import Registry
from mq.daemons.guarded_port import GuardedPort
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.listener import Listener
from mq.daemons.request_codes import handlers_of
from mq.daemons.supervision import Tasks
from mq.protocol.requests import CONTROLLER

if TYPE_CHECKING:
    from mq.daemons.metrics import Metric

from mq.daemons.metrics import Kind, Metric, counter, gauge, of_listeners, of_tasks

log = logging.getLogger(__name__)

# Seconds between checks whether a write has left the state of etcd uncertain.
_DOUBT_SECONDS = 0.5


def metrics_of(
    listener: Listener,
    tasks: Tasks,
    leadership: Leadership,
    registry: Registry,
    liveness: Liveness,
    elections: Elections,
) -> Iterator[Metric]:
    """All metrics. Only the leader reports those of replica sets."""
    yield from of_listeners({"main": listener})
    yield of_tasks(tasks)
    yield gauge("mq_controller_leads", "1 while this controller leads.", float(leadership.leads))
    yield counter(
        "mq_controller_leaderships_total",
        "Times this controller became the leader.",
        leadership.elections,
    )
    yield gauge("mq_controllers", "Live controllers in the group.", len(leadership.controllers))
    yield gauge("mq_brokers", "Brokers with a recent heartbeat.", len(liveness))
    yield counter("mq_elections_total", "Elections that found a master.", elections.held)
    yield counter("mq_elections_failed_total", "Elections that found no master.", elections.failed)
    labels = ("broker",)
    sets = sorted(registry, key=lambda kept: kept.name) if leadership.leads else []
    for name, doc, values in (
        (
            "mq_master_epoch",
            "Epoch of the master of a replica set.",
            [s.master_epoch for s in sets],
        ),
        (
            "mq_in_sync_replicas",
            "In-sync brokers of a replica set.",
            [len(s.members) for s in sets],
        ),
        ("mq_replicas", "Brokers of a replica set.", [len(s.replicas) for s in sets]),
        (
            "mq_has_master",
            "1 while the master of a replica set is alive.",
            [s.master_id is not None and liveness.is_alive(s.name, s.master_id) for s in sets],
        ),
    ):
        pairs = [((kept.name,), float(value)) for kept, value in zip(sets, values, strict=True)]
        yield Metric(name, Kind.gauge, doc, labels, pairs)


class Controller(Lifecycle):
    """A controller in this process: `async with Controller(settings) as controller`.

    It also runs without etcd and logs that; brokers then find no leader. Raises OSError if it
    cannot listen, ConfigError if aiohttp is not installed.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self.tasks: Tasks
        self.listener: Listener
        self.leadership: Leadership
        self.registry: Registry
        self.liveness: Liveness
        self.elections: Elections
        self.metrics_port = -1  # none
        self._guarded: GuardedPort

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def address(self) -> str:
        """host:port at which it is reached."""
        if self.settings.controller.controller_address:
            return self.settings.controller.controller_address
        return self._guarded.address

    async def _start(self, parts: AsyncExitStack) -> None:
        settings = self.settings
        self._guarded = port = GuardedPort(settings, CONTROLLER, settings.controller.rocketmq_home)
        self.listener = port.listener
        etcd = await parts.enter_async_context(client_of(settings.etcd))
        self.tasks = await parts.enter_async_context(Tasks())
        await parts.enter_async_context(self.listener)
        tls = settings.tls.client_context() if settings.tls.enable else None
        session = await parts.enter_async_context(Session(self.address, tls=tls))
        self._make_components(etcd, session)
        self.listener.dispatcher.serve(
            handlers_of(
                MembershipHandlers(self.registry, self.liveness, self.elections),
                AdminHandlers(settings, self.registry, self.liveness, self.leadership),
            )
        )
        parts.push_async_callback(
            self._resign, self.tasks.spawn(self.leadership.work, "leadership")
        )
        self.tasks.spawn(self.elections.work, "elections")
        self.tasks.spawn(self.elections.scan, "silent brokers")
        self.tasks.spawn(self._resolve_doubts, "doubtful writes")
        if exporters.are_wanted(settings.operation):
            self.metrics_port = await exporters.start_exporters(
                settings.operation, self.metrics, self.tasks, parts
            )
        port.watch(self.tasks)

    def _make_components(self, etcd: Etcd, session: Session) -> None:
        group = self.settings.controller.controller_d_leger_group
        prefix = f"{self.settings.etcd.etcd_prefix}/{group}/"

        self.leadership = Leadership(
            etcd,
            prefix,
            address=self.address,
            seconds=self.settings.etcd.leader_lease_seconds,
            on_lead=lambda: self.registry.load(),
            on_leading=lambda: self.elections.all_are_due(),
        )
        self.registry = Registry(etcd, f"{prefix}sets/", self.leadership)
        self.liveness = Liveness(lambda name, _: self.elections.is_due(name))
        self.elections = Elections(self.settings, self.registry, self.liveness, session)

    async def _resign(self, leading: "asyncio.Task[None]") -> None:
        """Resign the leadership, and do not try again while this controller stops."""
        leading.cancel()
        await asyncio.wait([leading])
        await self.leadership.give_up()

    async def _resolve_doubts(self) -> None:
        while True:
            await asyncio.sleep(_DOUBT_SECONDS)
            try:
                await self.registry.load_if_needed()
            except EtcdError as error:
                log.error("cannot read the replica sets: %s", error, extra={"failure": "etcd"})

    def ready_text(self) -> str:
        """The line that reports that the controller is ready, with its address."""
        return (
            f"The Controller Server boot success. serializeType=JSON, address "
            f"{self.listener.host}:{self.port}"
        )

    def status_text(self) -> str:
        leader = self.leadership.leader
        if self.leadership.leads:
            return f"{self.ready_text()}; leads {len(self.registry)} broker sets"
        return f"{self.ready_text()}; {leader or 'no controller'} leads"

    def reload(self) -> None:
        """Read certificates, accounts and writeAllowList again; requests change settings."""
        self._guarded.reload()

    def metrics(self) -> Iterator["Metric"]:
        """The controller's metrics."""

        return metrics_of(
            self.listener,
            self.tasks,
            self.leadership,
            self.registry,
            self.liveness,
            self.elections,
        )

    def state(self) -> Iterator[str]:
        """The lines of the state dump."""
        from mq.daemons.state_dump import connections, limited  # hardly ever needed

        yield from connections("main", self.listener)
        yield from self.tasks.state()
        yield f"leader: {self.leadership.leader or 'none'}"
        sets = [
            f"{one.name}: master {one.master_id}, epoch {one.master_epoch}, in sync "
            f"{sorted(one.members)} of {sorted(one.replicas)}"
            for one in self.registry
        ]
        yield f"broker sets: {len(sets)}"
        yield from limited(sorted(sets), "broker sets")
