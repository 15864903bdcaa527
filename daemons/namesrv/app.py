"""A name server: starts its components in order and stops them in reverse order."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mq.daemons import exporters
from mq.daemons.acl.writers import WriteAccess
from mq.daemons.dispatch import Handler
from mq.daemons.guarded_port import GuardedPort
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.listener import Listener
from mq.daemons.namesrv.acting_master import Notices
from mq.daemons.namesrv.beacons import BeaconListener
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.namesrv.handlers.brokers import BrokerHandlers
from mq.daemons.namesrv.handlers.kv import ConfigHandlers, KvHandlers
from mq.daemons.namesrv.handlers.registration import RegistrationHandlers, SnodeHandlers
from mq.daemons.namesrv.handlers.topic_lists import TopicListHandlers
from mq.daemons.namesrv.handlers.topics import TopicHandlers
from mq.daemons.namesrv.kv import KvConfig
from mq.daemons.namesrv.product_env import ProductEnvironment
from mq.daemons.namesrv.routes import Routes
from mq.daemons.namesrv.snodes import Snodes
from mq.daemons.request_codes import handlers_of
from mq.daemons.supervision import Tasks
from mq.protocol.requests import NAME_SERVER

if TYPE_CHECKING:
    from mq.daemons.metrics import Metric

from mq.daemons.metrics import Metric, counter, gauge, of_listeners, of_tasks


def metrics_of(
    listener: Listener,
    tasks: Tasks,
    routes: Routes,
    beacons: BeaconListener | None,
    snodes: Snodes,
) -> Iterator[Metric]:
    """All metrics."""
    yield from of_listeners({"main": listener})
    yield of_tasks(tasks)
    yield gauge("mq_brokers", "Registered addresses of brokers.", len(routes.live))
    yield gauge("mq_snodes", "Registered snodes.", len(snodes))
    yield gauge("mq_topics", "Topics with a route.", len(routes.topics))
    if beacons is not None:
        yield counter("mq_beacons_total", "Accepted beacons.", beacons.taken)
        yield counter(
            "mq_beacons_ignored_total",
            "Ignored datagrams, such as beacons of brokers not registered yet.",
            beacons.ignored,
        )


class NameServer(Lifecycle):
    """A name server in this process: `async with NameServer(settings) as server`.

    With `listenPort` 0 it uses any free port, which `port` returns. Raises OSError if it cannot
    listen.
    """

    def __init__(self, settings: NamesrvSettings) -> None:
        self.settings = settings
        self.routes = Routes()
        self.snodes = Snodes()
        self.tasks: Tasks
        self.listener: Listener
        self.beacons: BeaconListener | None = None
        self.access: WriteAccess | None = None
        self.metrics_port = -1  # none
        self._guarded: GuardedPort

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def address(self) -> str:
        """host:port at which this machine reaches it."""
        return self._guarded.address

    async def _start(self, parts: AsyncExitStack) -> None:
        settings = self.settings
        self._guarded = port = GuardedPort(settings, NAME_SERVER, settings.namesrv.rocketmq_home)
        self.access, self.listener = port.access, port.listener
        kv = KvConfig(Path(self.settings.namesrv.kv_config_path))
        self.tasks = await parts.enter_async_context(Tasks())
        elsewhere = None
        if self.settings.namesrv.cluster_test:
            elsewhere = await parts.enter_async_context(ProductEnvironment(self.settings.namesrv))
        self.routes.shows_acting = lambda: self.settings.namesrv.support_acting_master
        if self.settings.namesrv.notify_min_broker_id_changed:
            notices = Notices()
            await parts.enter_async_context(notices.session)
            self.routes.on_lowest_changed = notices.send
        self.listener.dispatcher.serve(self._handlers(kv, elsewhere))
        await parts.enter_async_context(self.listener)
        self.tasks.spawn(self._expire, "expiry of brokers")
        self.tasks.spawn(kv.log_periodically, "log of the KV configuration")
        await self._open_beacons(parts)
        if exporters.are_wanted(self.settings.operation):
            self.metrics_port = await exporters.start_exporters(
                self.settings.operation, self._metrics, self.tasks, parts
            )
        port.watch(self.tasks)

    def _handlers(self, kv: KvConfig, elsewhere: ProductEnvironment | None) -> dict[int, Handler]:
        routes, settings = self.routes, self.settings
        return handlers_of(
            KvHandlers(kv),
            RegistrationHandlers(routes, kv, settings),
            BrokerHandlers(routes, self.snodes),
            SnodeHandlers(self.snodes),
            TopicHandlers(routes, kv, settings, elsewhere),
            TopicListHandlers(routes),
            ConfigHandlers(settings),
        )

    def ready_text(self) -> str:
        """The line that reports that the name server is ready, with its address."""
        return (
            f"The Name Server boot success. serializeType=JSON, address "
            f"{self.listener.host}:{self.port}"
        )

    def status_text(self) -> str:
        return self.ready_text()

    def reload(self) -> None:
        """Read certificates, accounts and writeAllowList again; requests change settings."""
        self._guarded.reload()

    def _metrics(self) -> Iterator["Metric"]:

        return metrics_of(self.listener, self.tasks, self.routes, self.beacons, self.snodes)

    def state(self) -> Iterator[str]:
        """The lines of the state dump."""
        from mq.daemons.state_dump import connections, limited  # hardly ever needed

        yield from connections("main", self.listener)
        yield from self.tasks.state()
        now = self.routes.now()
        for address, live in sorted(self.routes.live.items()):
            yield f"broker {address}: last heartbeat {now - live.last_seen:.1f} s ago"
        for name, snode in sorted(self.snodes.info().snode_table.items()):
            yield f"snode {name} of {snode.cluster_name} at {snode.address}"
        routes = [f"topic {t} at {', '.join(sorted(b))}" for t, b in self.routes.topics.items()]
        yield f"topics: {len(routes)}"
        yield from limited(sorted(routes), "topics")

    async def _open_beacons(self, parts: AsyncExitStack) -> None:
        operation = self.settings.operation
        if not operation.liveness_beacon_enable:
            return
        beacons = self.beacons = BeaconListener(
            self.routes, operation.liveness_beacon_timeout_millis / 1000
        )
        if await beacons.open(self.listener.host, self.port):
            self.tasks.spawn(beacons.receive, "beacons")
            self.tasks.spawn(beacons.check, "expiry of beacons")
            parts.push_async_callback(beacons.close)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self.settings.namesrv.scan_not_active_broker_interval / 1000)
            self.routes.expire(self.settings.namesrv.broker_expired_timeout / 1000)
            self.snodes.expire(self.settings.namesrv.snode_expired_timeout / 1000)
