"""Acting component: a slave acts as the master while the master is absent."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from mq.client.machine import clock
from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.components.delivery import Delivery
from mq.daemons.broker.components.metadata import Metadata
from mq.daemons.broker.components.replication import Replication
from mq.daemons.broker.components.services import Services
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.failover.acting.duties import DelayDuty, HalfDuty, OffsetDuty, TimerDuty
from mq.daemons.broker.failover.acting.escape import EscapeBridge, EscapeWriter
from mq.daemons.broker.failover.acting.members import Members
from mq.daemons.broker.failover.acting.pop_revival import ActingCheckPoints, ActingRevival
from mq.daemons.broker.failover.acting.pre_online import CONNECT_SECONDS, PreOnline
from mq.daemons.broker.failover.acting.service import ActingMaster, Duty, Heartbeats
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.broker.roles import has_acting_slaves, is_slave, may_act_as_master
from mq.daemons.broker.stores import Stores
from mq.daemons.dispatch import Handler
from mq.daemons.supervision import Tasks


def asks_before_it_starts(settings: BrokerSettings) -> bool:
    """Whether a broker asks the other members of its replica set before it starts."""
    return has_acting_slaves(settings) and not settings.broker.skip_pre_online


@dataclass(frozen=True, slots=True)
class Acting:
    """The objects of the component.

    ``heartbeats`` exists if slaves may act as the master, ``members`` and ``master`` exist on such
    a slave, and ``bridge`` if that slave also delivers.
    """

    heartbeats: Heartbeats | None = None
    members: Members | None = None
    master: ActingMaster | None = None
    bridge: EscapeBridge | None = None

    @property
    def is_acting(self) -> bool:
        return self.master is not None and self.master.is_acting

    def works(self) -> Works:
        if self.heartbeats is not None:
            yield self.heartbeats.run, "heartbeats"
        if self.members is not None and self.master is not None:
            yield self.members.run, "members of the set"
            yield self.master.run, "acting master"

    def handlers(self) -> dict[int, Handler]:
        return {}

    def metrics(self) -> Metrics:
        from mq.daemons.metrics import counter, gauge  # imported only for a scrape

        if self.master is None:
            return
        doc = "1 while this slave acts as the master of its set."
        yield gauge("mq_acting_master", doc, float(self.master.is_acting))
        doc = "Times this slave began to act as the master."
        yield counter("mq_acting_master_begins_total", doc, self.master.began)
        if self.bridge is not None:
            doc = "Messages that this slave has delivered to other brokers."
            yield counter("mq_escaped_messages_total", doc, self.bridge.escaped)

    def info(self) -> dict[str, str]:
        """The runtime info of a slave that may act, for GET_BROKER_RUNTIME_INFO."""
        if self.master is None:
            return {}
        info = {"actingMaster": str(self.master.is_acting).lower()}
        if self.bridge is not None:
            info["escapedMessages"] = str(self.bridge.escaped)
        return info

    def look(self) -> None:
        """Query the members again: another broker is reported to have the lowest id."""
        if self.members is not None:
            self.members.poll_soon()

    @property
    def knows_better(self) -> bool:
        """Whether this slave may have newer data than its master."""
        return self.master is not None and self.master.knows_better

    async def stop(self) -> None:
        """Stop acting, while the connections that it needs are still open."""
        if self.master is not None:
            await self.master.stop()

    async def make_way(self) -> None:
        """Stop acting, because a master of the replica set starts."""
        if self.master is not None:
            await self.master.make_way()


def open_bridge(
    settings: BrokerSettings, registration: Callable[[], Registration], parts: AsyncExitStack
) -> EscapeBridge | None:
    """The connections of an acting master to other brokers; None if this broker never is one."""
    if not may_act_as_master(settings) or not settings.broker.enable_remote_escape:
        return None
    bridge = EscapeBridge(settings, lambda: registration().links())
    parts.push_async_callback(bridge.close)
    return bridge


def outward_writer(
    settings: BrokerSettings, stores: Stores, bridge: EscapeBridge | None
) -> EscapeWriter | None:
    """The writer for the logs of other brokers; None if this broker never writes to them."""
    if bridge is None:
        return None
    return EscapeWriter(settings, stores.messages, stores.topics, bridge)


def make_acting(
    settings: BrokerSettings,
    stores: Stores,
    delivery: Delivery,
    services: Services,
    registration: Registration,
    replication: Replication,
    metadata: Metadata,
    bridge: EscapeBridge | None,
    tasks: Tasks,
) -> Acting:
    """Make the component."""
    if not has_acting_slaves(settings):
        return Acting()
    heartbeats = Heartbeats(settings, registration)
    if not may_act_as_master(settings):
        return Acting(heartbeats)
    members = Members(settings, registration.links, registration.first_round)
    slave, copies = replication.slave, metadata.synchronize

    def hears_master() -> bool:
        if copies is not None and copies.is_taking:
            return True
        connection = None if slave is None else slave.connection
        silence = settings.broker.broker_not_active_timeout_millis / 1000
        return connection is not None and clock.monotonic() - connection.read_at < silence

    duties: list[Duty] = [OffsetDuty(stores.offsets)]
    if bridge is not None:
        points, outward = services.pop.points, delivery.outward
        assert isinstance(points, ActingCheckPoints)
        duties += [
            DelayDuty(settings, delivery.delayed),
            TimerDuty(stores, delivery.delayed, delivery.timer, outward),
            HalfDuty(stores, outward),
            ActingRevival(points, outward),
        ]
    number = settings.broker.broker_id
    on_master = registration.query_master
    master = ActingMaster(number, members, hears_master, duties, bridge, tasks, on_master)
    return Acting(heartbeats, members, master, bridge)


async def take_over_from_slaves(
    settings: BrokerSettings, stores: Stores, address: str, ha_address: str
) -> None:
    """Before the services of a master start, take over the progress of the slaves that acted for
    it. Raises OSError.
    """
    if asks_before_it_starts(settings) and not is_slave(settings):
        async with PreOnline(settings, address, ha_address) as online:
            await online.take_over(stores)


async def wait_for_log(
    settings: BrokerSettings, registration: Registration, replication: Replication
) -> None:
    """Before a slave registers, wait a limited time for the log of a live master."""
    slave = replication.slave
    if not asks_before_it_starts(settings) or slave is None:
        return
    async with PreOnline(settings, registration.address, registration.ha_address) as online:
        if not await online.find_master(registration.master_comes):
            return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            await slave.connected.wait()
