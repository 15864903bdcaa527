"""A broker: its parts, started in order and stopped in reverse."""

import gc
import logging
import socket
import struct
from collections.abc import Iterable
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import Self

from mq.daemons import exporters
from mq.daemons.acl.files import AclFiles
from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.broker.aside import SetAside
from mq.daemons.broker.beacons import Beacons
from mq.daemons.broker.chores import spawn_chores, spawn_timer
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.day_totals import DayTotals
from mq.daemons.broker.delay import DelayedMessages
from mq.daemons.broker.filter.bit_maps import extender
from mq.daemons.broker.filter.table import ConsumerFilters
from mq.daemons.broker.groups import Groups
from mq.daemons.broker.handlers.pull import PullHandlers
from mq.daemons.broker.limits import TopicSizes
from mq.daemons.broker.locks import QueueLocks
from mq.daemons.broker.moved_events import OffsetMovedEvents
from mq.daemons.broker.offsets import ConsumerOffsets
from mq.daemons.broker.pop.service import PopService
from mq.daemons.broker.protection import SlowConsumers
from mq.daemons.broker.registration import Registration
from mq.daemons.broker.registry import Consumers, Producers
from mq.daemons.broker.requests import Requests
from mq.daemons.broker.stat_items import StatItems, totals
from mq.daemons.broker.stats import BrokerStats
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import BrokerRole
from mq.daemons.broker.targets import SendTargets
from mq.daemons.broker.timer.service import Timer
from mq.daemons.broker.topics import Topics
from mq.daemons.broker.transactions.checks import TransactionChecks
from mq.daemons.broker.transactions.service import Transactions
from mq.daemons.broker.writer import MessageWriter
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.memory import MemoryBudget
from mq.daemons.supervision import Tasks
from mq.daemons.tls import ServerTls, server_tls

log = logging.getLogger(__name__)

# How long a stop waits for requests under way. Most need one turn of the loop more once the disk
# has confirmed; those that ask a client of theirs may need seconds, and are given up.
LAST_ANSWERS_SECONDS = 1.0


class Broker:
    """A broker in this process: `async with Broker(settings) as broker`.

    With `listenPort` 0 any free port is taken; `port` is the one that was. Raises OSError when it
    cannot listen, a StoreError when its store cannot be opened, and ConfigError for settings that
    it cannot keep to.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.tasks: Tasks
        self.store: MessageStore
        self.listener: Listener
        self.fast_listener: Listener
        self.pulls: PullHandlers
        self.pop: PopService
        self.sends: SendTargets
        self.moved_events: OffsetMovedEvents
        self.topic_sizes: TopicSizes
        self.access: AccessControl | None = None
        self.metrics_port = -1  # none
        self.tls: ServerTls | None = None
        self._parts = AsyncExitStack()

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def address(self) -> str:
        """host:port as clients are told it."""
        return f"{self.settings.broker.broker_ip1}:{self.port}"

    def ready_text(self) -> str:
        """The line that says that it serves, and where."""
        broker = self.settings.broker
        name_servers = broker.namesrv_addr or "none"
        return (
            f"The broker[{broker.broker_name}, {self.address}] boot success. serializeType=JSON "
            f"and name server is {name_servers}"
        )

    def status_text(self) -> str:
        """That it serves, and which name servers do not know it."""
        unknown = ", ".join(self.registration.unregistered())
        return self.ready_text() + (f"; not registered with {unknown}" if unknown else "")

    def reload(self) -> None:
        """Read ACL files, certificates and the key for name servers again; settings change by
        request."""
        if self.tls is not None:
            self.tls.reload()
        if self.access is not None:
            self.access.reload()
        self.registration.reload_key()

    def state(self) -> Iterable[str]:
        """What it has and does now."""
        from mq.daemons.broker.state import state_of  # hardly ever needed

        return state_of(self)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as parts:
            await self._start(parts)
            self._parts = parts.pop_all()
        # What is alive now stays: looking through it again and again costs a pause each time.
        gc.collect()
        gc.freeze()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    async def _start(self, parts: AsyncExitStack) -> None:
        settings = self.settings
        _check_role(settings.store.broker_role)
        self.access = self._access_control()
        self.tls = server_tls(settings.tls)
        self.memory = MemoryBudget(
            lambda: settings.operation.connection_memory_max_bytes,
            lambda: settings.operation.client_memory_max_bytes,
        )
        self.listener = self._make_listener(settings.server.listen_port)
        self.fast_listener = self._make_listener(settings.fast_port)
        # The ports come first: whoever is already there has this store open, too.
        for listener in (self.listener, self.fast_listener):
            await listener.bind()
            parts.push_async_callback(listener.close)
        await self._open_state(parts)
        self._make_parts()
        self.tasks = await parts.enter_async_context(Tasks())
        ha_port = settings.store.ha_listen_port or self.port + 1
        self.registration = Registration(settings, self.topics, self.port, ha_port, self.tasks)
        Requests(self).serve()
        parts.push_async_callback(self._end_reads)
        spawn_chores(self)
        if Timer.is_used(self.store.root):
            self._use_timer()
        for listener in (self.listener, self.fast_listener):
            await listener.start()
            parts.push_async_callback(listener.close)
        parts.push_async_callback(self._settle)
        await parts.enter_async_context(self.registration)
        if settings.operation.liveness_beacon_enable:
            self.tasks.spawn(Beacons(settings, self.registration).run, "beacons")
        if exporters.are_wanted(settings.operation):
            await self._export(parts)

    async def _open_state(self, parts: AsyncExitStack) -> None:
        """Open what is on the disk. It is saved in reverse when the broker stops."""
        settings = self.settings
        self.store = await parts.enter_async_context(
            MessageStore(lambda: settings.store, self._store_host())
        )
        store = self.store
        folder = store.root / "config"
        self.topics = Topics(folder / "topics.json", lambda: settings.broker)
        self.topics.adopt(store.queue_counts())
        self.topics.most = lambda: settings.operation.max_auto_created_topics
        parts.push_async_callback(self.topics.file.close)
        self.groups = Groups(folder / "subscriptionGroup.json", lambda: settings.broker)
        self.groups.most = lambda: settings.operation.max_auto_created_groups
        parts.push_async_callback(self.groups.file.close)
        self.offsets = ConsumerOffsets(folder / "consumerOffset.json")
        parts.push_async_callback(self.offsets.save)
        self.filters = ConsumerFilters(folder / "consumerFilter.json", lambda: settings.broker)
        if settings.store.enable_consume_queue_ext:
            store.appender.extend = extender(lambda: settings.broker, self.filters, store.queues)
        parts.push_async_callback(self.filters.save)
        self.aside = SetAside(store)
        parts.push_async_callback(self.aside.save)
        self.writer = MessageWriter(lambda: settings.store, store, self.topics)
        self.delayed = DelayedMessages(folder / "delayOffset.json", store, self.writer, self.aside)
        parts.push_async_callback(self.delayed.save)
        self.timer: Timer | None = None
        self.writer.on_timed = self._use_timer
        parts.push_async_callback(self._close_timer)
        self.transactions = Transactions(store, self.writer, self.offsets, self.topics)
        parts.callback(self.transactions.save_progress)

    def _make_parts(self) -> None:
        """Make what is in memory only."""
        settings, store = self.settings, self.store
        self.consumers = Consumers()
        self.producers = Producers()
        if self.access is not None:
            self.producers.may_have = self.access.may_have
        self.locks = QueueLocks(lifetime=settings.broker.rebalance_lock_max_live_time / 1000)
        self.transaction_checks = TransactionChecks(
            lambda: settings.broker,
            lambda: settings.store,
            self.transactions,
            self.writer,
            self.topics,
            self.producers,
            self.aside,
        )
        settings.on_change.append(lambda _: self.transaction_checks.configure())
        self.stats = BrokerStats(lambda: (store.appender.messages, store.appender.size))
        self.days = DayTotals(self.stats)
        self.figures = StatItems(
            lambda: totals(store.queues, self.stats, lambda: settings.broker),
            lambda: settings.broker,
        )
        self.guard = SlowConsumers(
            lambda: settings.broker, lambda: settings.store, self.stats, self.groups
        )
        self.topics.on_change.append(self._forget_deleted)

    async def _export(self, parts: AsyncExitStack) -> None:
        from mq.daemons.broker.metrics import metrics_with_pauses  # only where somebody reads it
        from mq.daemons.metrics import LoopDelay

        delay = LoopDelay()
        self.tasks.spawn(delay.run, "loop delay")
        self.metrics_port = await exporters.start_exporters(
            self.settings.operation,
            lambda: chain(metrics_with_pauses(self), (delay.metric(),)),
            self.tasks,
            parts,
        )

    def _make_listener(self, port: int) -> Listener:
        server = self.settings.server
        dispatcher = Dispatcher(
            {},
            guard=self.access,
            slow_seconds=self.settings.operation.slow_request_millis / 1000,
        )
        return Listener(
            dispatcher,
            self.settings.listen_host,
            port,
            idle_seconds=server.server_channel_max_idle_time_seconds,
            backlog=server.server_socket_backlog,
            tls=self.tls,
            max_connections=lambda: self.settings.operation.max_connections,
            longest_wait=self.longest_wait,
            buffers=server.buffers(),
            memory=self.memory,
        )

    def _access_control(self) -> AccessControl | None:
        broker = self.settings.broker
        if not broker.acl_enable:
            return None
        return AccessControl(AclFiles(Path(broker.rocketmq_home or "."), broker.acl_plain_file))

    def _store_host(self) -> bytes:
        """This broker's address and port as every record holds them: what ids are made of."""
        host = self.settings.broker.broker_ip1
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            raw = socket.inet_pton(family, host)
        except OSError:
            raw = socket.inet_aton(socket.gethostbyname(host))
        return raw + struct.pack(">i", self.port)

    def longest_wait(self) -> float:
        """Seconds that a send may wait to be read; 0 for any time."""
        config = self.settings.broker
        if not config.broker_fast_failure_enable:
            return 0.0
        return config.wait_time_mills_in_send_queue / 1000

    def _use_timer(self) -> None:
        """Start the timer with the first message for it: most brokers never need its files."""
        if self.timer is None:
            self.timer = Timer(lambda: self.settings.store, self.store, self.writer, self.aside)
            spawn_timer(self, self.timer)

    def _forget_deleted(self, topic: str) -> None:
        """Drop the figures of a topic that has been deleted, if they shall go with it."""
        is_deleted = bool(topic) and self.topics.get(topic) is None
        if is_deleted and self.settings.broker.auto_delete_unused_stats:
            self.stats.forget_topic(topic)

    async def _close_timer(self) -> None:
        if self.timer is not None:
            await self.timer.close()

    async def _settle(self) -> None:
        """Before the connections close: answer the sends that still wait for the disk.

        What is stored and not answered is sent again, and then there twice.
        """
        for listener in (self.listener, self.fast_listener):
            listener.stop_accepting()
        self.store.stop_taking()
        await self.store.flusher.drain()
        for listener in (self.listener, self.fast_listener):
            await listener.finish(LAST_ANSWERS_SECONDS)
        await self._end_reads()

    async def _end_reads(self) -> None:
        """Finish what is being read for connections; once more when none is left."""
        await self.pulls.close()
        await self.pop.close()
        await self.pop.save()


def _check_role(role: BrokerRole) -> None:
    """Raises ConfigError for a role that promises replication, which there is not yet."""
    if role is BrokerRole.SYNC_MASTER:
        raise ConfigError(
            "brokerRole=SYNC_MASTER: this broker does not replicate yet, so a send would be "
            "answered though no slave has the message; set brokerRole=ASYNC_MASTER"
        )
    if role is BrokerRole.SLAVE:
        raise ConfigError(
            "brokerRole=SLAVE: this broker does not replicate yet, so it would never get what its "
            "master has; run a slave of RocketMQ, or set brokerRole=ASYNC_MASTER"
        )
