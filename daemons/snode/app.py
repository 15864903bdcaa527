"""A snode: starts its components in order and stops them in reverse order.

enodes        the brokers that it forwards to, and the connections to them
forwarding    sends clients' requests to their enodes, and the replies back
clients       connected clients, their groups, and push sessions
offsets       commits of groups, kept for their enodes
registration  with name servers, and heartbeats to brokers
listeners     the port of clients, and the ports that each stand for one enode
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.daemons import exporters
from mq.daemons.acl.files import AclFiles
from mq.daemons.broker.clients.client_handlers import ClientRules
from mq.daemons.broker.clients.registry import ConsumerGroup, Consumers, Producers
from mq.daemons.broker.filters.table import refuse_unsupported
from mq.daemons.config import ConfigError
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.listener import Listener
from mq.daemons.request_codes import handlers_of
from mq.daemons.snode.access import SnodeAccess
from mq.daemons.snode.config import SnodeSettings
from mq.daemons.snode.enodes import Enodes
from mq.daemons.snode.flow_control import InterceptorChain
from mq.daemons.snode.forwarding import Forwarding
from mq.daemons.snode.groups import SnodeGroups
from mq.daemons.snode.handlers.clients import SnodeClientHandlers
from mq.daemons.snode.handlers.offsets import OffsetHandlers, QueueHandlers
from mq.daemons.snode.handlers.pulls import PullHandlers
from mq.daemons.snode.handlers.routes import RouteHandlers
from mq.daemons.snode.handlers.sends import SendHandlers
from mq.daemons.snode.interceptors import InterceptorGroup
from mq.daemons.snode.offsets import OffsetCache
from mq.daemons.snode.push.service import PushService
from mq.daemons.snode.push.sessions import PushSessions
from mq.daemons.snode.registration import Registration
from mq.daemons.snode.relay import NativeRelay, Relays, RelaySession
from mq.daemons.snode.stand_ins import StandIns
from mq.daemons.supervision import Tasks
from mq.daemons.tls import ServerTls, server_tls
from mq.protocol.native import absent, native

if TYPE_CHECKING:
    from mq.daemons.broker.app import Broker
    from mq.daemons.metrics import Metric
from mq.daemons.connection_order import SNODE_TURNS
from mq.daemons.dispatch import Dispatcher
from mq.daemons.memory import MemoryBudget

log = logging.getLogger(__name__)

# Limit in seconds of a stop's wait for requests at enodes.
LAST_ANSWERS_SECONDS = 1.0
# Limit in seconds of the start's wait for name servers, so that a snode that reports to be ready
# can serve.
_FIRST_REFRESH_SECONDS = 3.0


class Ports:
    """`main` is the port of clients, `stand_ins` are by enode name. Not bound yet."""

    def __init__(
        self, settings: SnodeSettings, access: SnodeAccess | None, tls: ServerTls | None
    ) -> None:
        self._settings = settings
        self._access = access
        self._tls = tls
        self._memory = MemoryBudget(
            lambda: settings.operation.connection_memory_max_bytes,
            lambda: settings.operation.client_memory_max_bytes,
        )
        self.main = self._listener(settings.server.listen_port)
        named = settings.snode.stand_ins()
        self.stand_ins = {name: self._listener(port) for name, port in named.items()}

    def all(self) -> dict[str, Listener]:
        """All ports, by name."""
        return {"main": self.main, **self.stand_ins}

    def _listener(self, port: int) -> Listener:
        settings, server = self._settings, self._settings.server
        slow = settings.operation.slow_request_millis / 1000
        return Listener(
            Dispatcher({}, guard=self._access, slow_seconds=slow, turns=SNODE_TURNS),
            settings.listen_host,
            port,
            idle_seconds=server.server_channel_max_idle_time_seconds,
            backlog=server.server_socket_backlog,
            tls=self._tls,
            max_connections=lambda: settings.operation.max_connections,
            buffers=server.buffers(),
            memory=self._memory,
        )


class Snode(Lifecycle):
    """A snode in this process: `async with Snode(settings) as snode`.

    With `listenPort` 0 it uses any free port, which `port` returns. It also runs without name
    servers, and serves as soon as it finds them. Raises OSError if it cannot listen, and
    ConfigError for settings that cannot be satisfied.
    """

    def __init__(self, settings: SnodeSettings) -> None:
        self.settings = settings
        self.tasks = Tasks()
        self.access: SnodeAccess | None = None
        self.tls: ServerTls | None = None
        self.enodes: Enodes
        self.broker: Broker | None = None  # the broker of embedded mode
        self.forwarding: Forwarding
        self.consumers = Consumers()
        self.producers = Producers()
        self.sessions = PushSessions()
        self.groups: SnodeGroups
        self.offsets: OffsetCache
        self.push: PushService
        self.sends: SendHandlers
        self.registration: Registration
        self.metrics_port = -1  # none
        self._around: InterceptorChain
        self._ports: Ports
        self._relays: Relays | None = None  # None without the native path
        self._stand_ins: StandIns

    @property
    def listener(self) -> Listener:
        """The port of clients."""
        return self._ports.main

    @property
    def stand_in_listeners(self) -> dict[str, Listener]:
        """The ports that stand for enodes, by enode name."""
        return self._ports.stand_ins

    @property
    def interceptors(self) -> tuple[InterceptorGroup, InterceptorGroup, InterceptorGroup]:
        """The groups of the server, of sends and of pulls."""
        return self._around.groups

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def name(self) -> str:
        return self.settings.snode.snode_name

    @property
    def address(self) -> str:
        """host:port as announced to clients."""
        return f"{self.settings.snode.snode_ip1}:{self.port}"

    def listeners(self) -> dict[str, Listener]:
        """All ports, by name."""
        return self._ports.all()

    async def _start(self, parts: AsyncExitStack) -> None:
        settings = self.settings
        self.access = self._access_control()
        self.tls = server_tls(settings.tls)
        self._around = InterceptorChain(settings.snode)
        self._ports = Ports(settings, self.access, self.tls)
        for listener in self.listeners().values():
            await listener.bind()
            parts.callback(listener.stop_accepting)
        self.enodes = await parts.enter_async_context(await self._make_enodes(parts))
        self._make_components()
        self._serve()
        await parts.enter_async_context(self.tasks)
        await self._refresh_first()
        self._spawn()
        parts.push_async_callback(self.offsets.close)
        for listener in self.listeners().values():
            await listener.start()
            parts.push_async_callback(listener.close)
        parts.push_async_callback(self._drain)
        if exporters.are_wanted(settings.exported()):
            self.metrics_port = await exporters.start_exporters(
                settings.exported(), self.metrics, self.tasks, parts
            )
        self.tasks.spawn(self.registration.work, "registration")

    async def _make_enodes(self, parts: AsyncExitStack) -> Enodes:
        """Make the links to the brokers; in embedded mode start the broker in this process."""
        settings = self.settings
        encrypts = settings.tls.enable or settings.client.use_tls
        tls = settings.tls.client_context() if encrypts else None
        if not settings.snode.embedded_mode_enable:
            if native is None:
                log.info("plain sends do not use the native path: %s", absent)
                return Enodes(settings, tls=tls)
            self._relays = Relays(settings.snode.enode_request_timeout / 1000)
            return Enodes(settings, tls=tls, make_session=partial(RelaySession, self._relays))
        from mq.daemons.broker.app import Broker
        from mq.daemons.snode.embedded import EmbeddedSession, embedded_settings

        file = settings.snode.embedded_broker_config
        of_broker = embedded_settings(file, settings.snode.namesrv_addr)
        name = of_broker.broker.broker_name
        settings.snode = settings.snode.replace(snode_name=name)
        self.broker = broker = await parts.enter_async_context(Broker(of_broker))
        return Enodes(
            settings,
            tls=tls,
            make_session=partial(EmbeddedSession, broker),
            only={name: broker.address},
        )

    def _make_components(self) -> None:
        settings, enodes = self.settings, self.enodes
        snode = settings.snode
        around = self._around
        stand_ins = self._stand_ins = StandIns(
            enodes, snode.default_enode, snode.snode_ip1, lambda: self.port
        )
        stand_ins.open({name: one.port for name, one in self.stand_in_listeners.items()})
        self.forwarding = Forwarding(
            lambda: self.settings.snode, enodes, around.server, lambda: stand_ins.by_port
        )
        self.groups = SnodeGroups(settings, enodes)
        self.offsets = OffsetCache(settings, enodes)
        self.push = PushService(
            self.sessions,
            self.offsets,
            threshold=lambda: settings.snode.slow_consumer_threshold,
            policy=lambda: settings.snode.slow_consumer_policy,
            may_consume=self.groups.may_consume,
        )
        self.sends = SendHandlers(
            *(self.forwarding, self.push, around.send, lambda: self.address, enodes),
            access=self.access,
        )
        self.registration = Registration(
            settings, enodes, self.groups, self.name, lambda: self.address
        )
        enodes.on_link_ended.append(self.push.link_ended)
        self.consumers.on_change.append(self._group_changed)

    def _group_changed(self, group: ConsumerGroup) -> None:
        self.offsets.group_changed(group.name)

    def _serve(self) -> None:
        consume = self._around.consume
        forwarding, enodes = self.forwarding, self.enodes
        handlers = handlers_of(
            SnodeClientHandlers(
                self._rules(), self.consumers, self.producers, self.groups, self.sessions
            ),
            self.sends,
            PullHandlers(forwarding, enodes, self.groups, self.consumers, self.offsets, consume),
            OffsetHandlers(self.settings, forwarding, enodes, self.offsets),
            QueueHandlers(forwarding, enodes, self.groups),
            RouteHandlers(enodes, self._stand_ins),
        )
        for listener in self.listeners().values():
            listener.dispatcher.serve(
                {code: self._around.wrap(code, handler) for code, handler in handlers.items()}
            )
        log.info("serving %d request codes", len(handlers))
        self._serve_natively()

    def _serve_natively(self) -> None:
        """Relay plain sends natively, without decoding, unless something must see them."""
        relays, around = self._relays, self._around
        if relays is None or self.access is not None:
            return
        relays.forwarding, relays.sizes = self.forwarding, self.sends.sizes
        sessions = self.sessions

        def is_open() -> bool:
            return not (around.sees_sends or self.enodes.signs)

        alone = self.forwarding.enode_alone
        relay = NativeRelay(
            *(self.enodes, is_open, lambda: sessions.topics, alone),
            *(self.forwarding.has_waiting, lambda: self.address),
        )
        for listener in self.listeners().values():
            listener.dispatcher.serve_bulk(relay.take)
        log.info("plain sends use the native path")

    def _rules(self) -> ClientRules:
        snode, operation = self.settings.snode, self.settings.operation
        return ClientRules(
            notifies=lambda: snode.notify_consumer_ids_changed_enable,
            most_groups=lambda: operation.heartbeat_max_groups,
            check_expression=lambda kind: refuse_unsupported(kind, snode.enable_property_filter),
        )

    def _access_control(self) -> SnodeAccess | None:
        snode = self.settings.snode
        if not snode.acl_enable:
            return None
        return SnodeAccess(AclFiles(Path(snode.rocketmq_home or "."), snode.acl_plain_file))

    async def _refresh_first(self) -> None:
        """Query enodes and groups before clients connect, if name servers reply."""
        try:
            async with asyncio.timeout(_FIRST_REFRESH_SECONDS):
                await self.enodes.refresh()
                await self.groups.read()
        except (MQError, TimeoutError) as error:
            log.warning("started without name servers: %s", error or "no reply")
        self.enodes.heartbeats()

    def _spawn(self) -> None:
        tasks = self.tasks
        tasks.spawn(self.registration.refresh, "enodes and groups")
        tasks.spawn(self.registration.heartbeats, "heartbeats")
        tasks.spawn(self.groups.work, "groups at enodes")
        tasks.spawn(self.offsets.work, "offsets")
        tasks.spawn(self._expire, "expiry of clients")
        tasks.spawn(self._around.flow.watch, "flow control")
        if self.access is not None:
            tasks.spawn(self.access.watch, "ACL files")
        if self.tls is not None:
            tasks.spawn(self.tls.watch, "certificates")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self.settings.snode.house_keeping_interval / 1000)
            timeout = self.settings.snode.channel_expired_timeout / 1000
            self.consumers.expire(timeout)
            self.producers.expire(timeout)

    async def _drain(self) -> None:
        """Before the connections close, relay pending replies of enodes."""
        for listener in self.listeners().values():
            listener.stop_accepting()
        for listener in self.listeners().values():
            await listener.dispatcher.finish(LAST_ANSWERS_SECONDS)
        await self.forwarding.finish(LAST_ANSWERS_SECONDS)

    def ready_text(self) -> str:
        """The line that reports that the snode is ready, with its address."""
        return (
            f"The snode[{self.name}, {self.address}] boot success. serializeType=JSON and name "
            f"server is {self.settings.snode.namesrv_addr}"
        )

    def status_text(self) -> str:
        """The ready text, with current problems."""
        unknown = ", ".join(self.registration.unregistered())
        missing = f"; not registered with {unknown}" if unknown else ""
        return f"{self.ready_text()}; {len(self.enodes.masters)} enodes{missing}"

    def reload(self) -> None:
        """Read ACL files, certificates and the key for enodes again."""
        if self.tls is not None:
            self.tls.reload()
        if self.access is not None:
            self.access.reload()
        try:
            self.enodes.set_key(self.settings.enode_key())
        except ConfigError as error:
            log.error("keeping the old key for enodes: %s", error)

    def metrics(self) -> Iterator["Metric"]:
        """The snode's metrics."""
        from mq.daemons.snode.metrics import metrics_of  # only if they are read

        return metrics_of(self)

    def state(self) -> Iterator[str]:
        """The lines of the state dump."""
        from mq.daemons.state_dump import connections, limited  # hardly ever needed

        for name, listener in self.listeners().items():
            yield from connections(name, listener)
        yield from self.tasks.state()
        for name, address in sorted(self.enodes.masters.items()):
            yield f"enode {name} at {address}"
        yield f"requests at enodes: {self.forwarding.in_flight}"
        yield f"offsets: {len(self.offsets)}, {self.offsets.unsent} of them not sent yet"
        groups = [f"group {g.name}: {len(g.clients)}" for g in self.consumers.groups.values()]
        yield f"groups with consumers: {len(groups)}"
        yield from limited(sorted(groups), "groups")
