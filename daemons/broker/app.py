"""A broker: starts its components in order and stops them in reverse order."""

import logging
import socket
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from mq.daemons import exporters
from mq.daemons.acl.files import AclFiles
from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.broker.admin.filter_servers import FilterServers
from mq.daemons.broker.component import Component, Metrics
from mq.daemons.broker.components.acting import (
    Acting,
    make_acting,
    open_bridge,
    outward_writer,
    take_over_from_slaves,
    wait_for_log,
)
from mq.daemons.broker.components.clients import Clients, make_clients
from mq.daemons.broker.components.delivery import Delivery, open_delivery
from mq.daemons.broker.components.filters import Filters, make_filters
from mq.daemons.broker.components.listeners import make_listeners, serve
from mq.daemons.broker.components.membership import Membership, make_membership
from mq.daemons.broker.components.metadata import Metadata, make_metadata
from mq.daemons.broker.components.replication import (
    ControllerReplication,
    Replication,
    bound_of,
    open_replication,
)
from mq.daemons.broker.components.services import Services, make_services
from mq.daemons.broker.components.stats import Stats, make_stats
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.failover.acting.escape import EscapeBridge
from mq.daemons.broker.name_servers.beacons import Beacons
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.broker.replication.controlled import ControlledRole, Controllers
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.broker.replication.master_addresses import AssignedMaster, MasterAddresses
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.stores import Stores, open_stores
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Dispatcher
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.listener import Listener
from mq.daemons.supervision import Tasks
from mq.daemons.tls import ServerTls, server_tls
from mq.protocol.host import pack_address
from mq.protocol.native import absent

if TYPE_CHECKING:
    from mq.daemons.broker.metrics.broker import BrokerMetrics
from collections.abc import Iterator, Mapping

from mq.daemons.broker.pull.long_polling import SuspendedPull
from mq.daemons.broker.store import ConsumeQueue, MessageStore
from mq.daemons.state_dump import connections, limited

log = logging.getLogger(__name__)

# Limit in seconds of a stop's wait for requests in progress. Most need one more turn of the event
# loop after the disk has confirmed; those that ask another client may need seconds, and are
# abandoned.
LAST_ANSWERS_SECONDS = 1.0


def state_of(
    listeners: Mapping[str, Listener], tasks: Tasks, stores: Stores, clients: Clients, stats: Stats
) -> Iterator[str]:
    """Connections, groups, the store and its queues, suspended pulls: a line each."""
    for name, listener in listeners.items():
        yield from connections(name, listener)
    for name, group in sorted(clients.consumers.groups.items()):
        yield (
            f"consumer group {name}: {group.message_model}, members "
            f"{', '.join(sorted(group.client_ids()))}, topics "
            f"{', '.join(sorted(group.subscriptions))}"
        )
    yield from _store(stores.messages)
    yield from tasks.state()
    for service, count in sorted(stores.aside.counts.items()):
        yield f"set aside by {service}: {count}"
    counters = stats.counters
    yield (
        f"since the start: {counters.puts} messages stored, {counters.transferred} read, "
        f"{counters.found} pulls found something, {counters.missed} nothing"
    )


def _store(store: MessageStore) -> Iterator[str]:
    log, flusher = store.log, store.flusher
    yield (
        f"log: {log.minimum} to {log.written}, flushed to {log.flushed}, "
        f"{len(log.files)} files, {store.appender.failed_writes} failed writes"
    )
    yield (
        f"flushes: {flusher.flushes}, the last took {flusher.last_seconds:.4f} s, "
        f"{flusher.waiting_replies} sends wait for one"
    )
    refusal = store.appender.refusal
    yield f"sends: {'taken' if refusal is None else f'refused: {refusal}'}"
    queues = sorted(store.queues, key=lambda queue: (queue.topic, queue.queue_id))
    held = sum(map(_held, queues))
    yield f"queues: {len(queues)}, held pulls: {held}"
    yield from limited(
        [
            f"queue {queue.topic} {queue.queue_id}: {queue.minimum} to {queue.readable}, "
            f"{_held(queue)} held pulls"
            for queue in queues
        ],
        "queues",
    )


def _held(queue: ConsumeQueue) -> int:
    """The suspended pulls of consumers; delayed messages and other readers wait at queues, too."""
    return sum(1 for waiting in queue.waiting if isinstance(waiting, SuspendedPull))


class Broker(Lifecycle):
    """A broker in this process: `async with Broker(settings) as broker`.

    With `listenPort` 0 it uses any free port, which `port` returns. Raises OSError if it cannot
    listen, StoreError if its store cannot be opened, and ConfigError for settings that cannot be
    satisfied.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        role: ControlledRole | None = None,
        controllers: Controllers | None = None,
    ) -> None:
        """`role` and `controllers` exist with enableControllerMode."""
        self.settings = settings
        self.role = role
        self.controllers = controllers
        self.on_role_notice: Callable[[], None] = lambda: None  # controllers report another master
        self.member_metrics: Callable[[], Metrics] = lambda: iter(())
        self.tasks = Tasks()
        self.access: AccessControl | None = None
        self.tls: ServerTls | None = None
        self.listener: Listener
        self.fast_listener: Listener
        self.stores: Stores
        self.clients: Clients
        self.stats: Stats
        self.delivery: Delivery
        self.ha_master: HaMaster
        self.replication: Replication
        self.master_addresses = MasterAddresses(settings.store.ha_master_address or "")
        if role is not None and not role.is_master:
            self.master_addresses = AssignedMaster(role.master_address, role.master_ha_address)
        self.services: Services
        self.metadata: Metadata
        self.membership: Membership
        self.acting: Acting
        self.filters: Filters
        self.registration: Registration
        self.metrics_port = -1  # none

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def address(self) -> str:
        """host:port as announced to clients."""
        return f"{self.settings.broker.broker_ip1}:{self.port}"

    def ready_text(self) -> str:
        """The line that reports the start, with the address."""
        broker = self.settings.broker
        name_servers = broker.namesrv_addr or "none"
        return (
            f"The broker[{broker.broker_name}, {self.address}] boot success. serializeType=JSON "
            f"and name server is {name_servers}"
        )

    def status_text(self) -> str:
        """The ready text, with the name servers that do not know the broker."""
        unknown = ", ".join(self.registration.unregistered())
        return self.ready_text() + (f"; not registered with {unknown}" if unknown else "")

    def reload(self) -> None:
        """Read ACL files, certificates and the key for name servers again; settings are changed by
        requests.
        """
        if self.tls is not None:
            self.tls.reload()
        if self.access is not None:
            self.access.reload()
        self.registration.reload_key()
        self.metadata.reload_key()

    def state(self) -> Iterable[str]:
        """The lines of the state dump."""

        return state_of(self._listeners(), self.tasks, self.stores, self.clients, self.stats)

    def metrics(self) -> "BrokerMetrics":
        """The broker's metrics."""
        from mq.daemons.broker.metrics.broker import BrokerMetrics  # only if they are read

        return BrokerMetrics(self._listeners(), self.tasks, self._components())

    def _components(self) -> list[Component]:
        return [
            *(self.stats, self.services, self.stores, self.delivery, self.clients),
            *(self.replication, self.metadata, self.membership, self.acting),
            self.filters,
        ]

    def _listeners(self) -> dict[str, Listener]:
        return {"main": self.listener, "fast": self.fast_listener}

    async def _start(self, parts: AsyncExitStack) -> None:
        """Start everything, in order; `parts` stops it in reverse order."""
        control = self._control()
        self.access = self._access_control()
        self.tls = server_tls(self.settings.tls)
        # The ports come first: another process that has them also has this store open.
        listeners = await self._bind(parts)
        bridge = await self._open(control, parts)
        self._make_components(bridge)
        await self._serve(listeners, parts)

    async def _bind(self, parts: AsyncExitStack) -> tuple[Listener, Listener]:
        """Bind the ports; nothing is served yet."""
        listeners = make_listeners(self.settings, self.access, self.tls)
        self.listener, self.fast_listener = listeners
        for listener in listeners:
            await listener.bind()
            parts.callback(listener.stop_accepting)
        self.ha_master = HaMaster(self.settings)
        await self.ha_master.bind()
        parts.callback(self.ha_master.stop_accepting)
        return listeners

    async def _open(
        self, control: ControllerReplication | None, parts: AsyncExitStack
    ) -> EscapeBridge | None:
        """Make the components that must be closed: stores, delivery, tasks and replication.

        Returns the connections to other brokers, which other components use, too.
        """
        settings, tasks = self.settings, self.tasks
        bound = None if control is None else control.bound
        self.stores = stores = await open_stores(settings, self._store_host(), parts, bound)
        ha_address = f"{settings.broker.broker_ip2}:{self.ha_master.port}"
        await take_over_from_slaves(settings, stores, self.address, ha_address)
        self.clients = clients = make_clients(settings, self.address, stores, self.access)
        self.stats = make_stats(settings, stores, clients)
        bridge = open_bridge(settings, lambda: self.registration, parts)
        self.delivery = open_delivery(
            settings, stores, clients, tasks, parts, outward_writer(settings, stores, bridge)
        )
        await parts.enter_async_context(tasks)
        self.replication = await open_replication(
            settings,
            stores,
            self.ha_master,
            self.master_addresses,
            parts,
            self.delivery.delayed,
            control,
        )
        return bridge

    def _make_components(self, bridge: EscapeBridge | None) -> None:
        """Make the other components, each from earlier ones."""
        settings, stores, tasks = self.settings, self.stores, self.tasks
        self.registration = Registration(
            settings,
            stores.topics,
            self.port,
            self.ha_master.port,
            tasks,
            self.master_addresses,
            self.role,
        )
        self.membership = make_membership(
            settings,
            stores,
            self.registration,
            lambda: self.on_role_notice(),
            lambda: self.member_metrics(),
            lambda: self.acting,
        )
        self.services = make_services(
            settings, stores, self.clients, self.stats, self.delivery, self.registration, tasks
        )
        self.metadata = make_metadata(
            settings,
            stores,
            self.delivery,
            self.services,
            self.registration,
            self.replication,
            knows_better=lambda: self.acting.knows_better,
        )
        self.acting = make_acting(
            settings,
            stores,
            self.delivery,
            self.services,
            self.registration,
            self.replication,
            self.metadata,
            bridge,
            tasks,
        )
        self.services.runtime_info.append(self.acting.info)
        self.filters = make_filters(
            settings, FilterServers(settings, self.access), self.registration, self.port
        )

    async def _serve(self, listeners: tuple[Listener, Listener], parts: AsyncExitStack) -> None:
        """Serve requests, start tasks and register: all components exist."""
        settings, tasks = self.settings, self.tasks
        main, fast = (listener.dispatcher for listener in listeners)
        serve(settings, self._components(), self.services, main, fast)
        self._log_paths(main)
        parts.push_async_callback(self.services.end_reads)  # again when no connection is left
        self._spawn()
        for listener in listeners:
            await listener.start()
            parts.push_async_callback(listener.close)
        parts.push_async_callback(self._drain)
        parts.push_async_callback(self.filters.close)
        await wait_for_log(settings, self.registration, self.replication)
        await parts.enter_async_context(self.registration)
        parts.push_async_callback(self.acting.stop)
        if settings.operation.liveness_beacon_enable:
            tasks.spawn(Beacons(settings, self.registration).run, "beacons")
        if exporters.are_wanted(settings.operation):
            await self._export(parts)

    def _log_paths(self, main: Dispatcher) -> None:
        """Log which requests use the native path, or why they do not."""
        if main.bulk is not None:
            log.info("plain sends use the native path")
        else:
            why = absent or "access control or clientSendRate must check each of them"
            log.info("plain sends do not use the native path: %s", why)
        if self.services.pulls.native.is_taken:
            log.info("plain pulls use the native path")
        else:
            log.info("plain pulls do not use the native path: %s", absent)

    def _control(self) -> ControllerReplication | None:
        """The role given by controllers. Raises ConfigError if the settings contradict it."""
        settings, role = self.settings, self.role
        if role is None or self.controllers is None:
            if settings.broker.enable_controller_mode:
                raise ConfigError(
                    "enableControllerMode=true: controllers assign the role, and have not been "
                    "asked; start the broker with `mq broker`"
                )
            return None
        if role.is_master == is_slave(settings):
            given, meant = settings.store.broker_role, "master" if role.is_master else "slave"
            raise ConfigError(f"brokerRole={given}: controllers have made this broker a {meant}")
        return ControllerReplication(role, self.controllers, bound_of(settings, role))

    def _spawn(self) -> None:
        """Start the tasks of all components."""
        for component in self._components():
            for work, name in component.works():
                self.tasks.spawn(work, name)
        self.delivery.start_used_timer()
        if self.access is not None:
            self.tasks.spawn(self.access.watch, "ACL files")
        if self.tls is not None:
            self.tasks.spawn(self.tls.watch, "certificates")

    async def _export(self, parts: AsyncExitStack) -> None:
        from mq.daemons.metrics import LoopDelay

        delay, metrics = LoopDelay(), self.metrics()
        self.tasks.spawn(delay.run, "loop delay")
        self.metrics_port = await exporters.start_exporters(
            self.settings.operation,
            lambda: chain(metrics.with_pauses(), (delay.metric(),)),
            self.tasks,
            parts,
        )

    def _access_control(self) -> AccessControl | None:
        broker = self.settings.broker
        if not broker.acl_enable:
            return None
        return AccessControl(AclFiles(Path(broker.rocketmq_home or "."), broker.acl_plain_file))

    def _store_host(self) -> bytes:
        """This broker's address and port as stored in every record and in message ids."""
        host = self.settings.broker.broker_ip1
        try:
            return pack_address(host, self.port)
        except ValueError:
            try:
                return pack_address(socket.gethostbyname(host), self.port)
            except (OSError, UnicodeError) as error:
                raise ConfigError(
                    f"brokerIP1={host}: expected an address, of IPv6 without brackets, or a name "
                    f"that can be resolved ({error})"
                ) from None

    async def _drain(self) -> None:
        """Before the connections close, answer the sends that still wait for the disk.

        A message that is stored but not acknowledged is sent again, and then stored twice.
        """
        for listener in (self.listener, self.fast_listener):
            listener.stop_accepting()
        store = self.stores.messages
        store.stop_taking()
        await store.flusher.drain()
        await self.replication.settle(LAST_ANSWERS_SECONDS)
        for listener in (self.listener, self.fast_listener):
            await listener.dispatcher.finish(LAST_ANSWERS_SECONDS)
        await self.services.end_reads()
