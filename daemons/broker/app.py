"""A broker: its parts, started in order and stopped in reverse."""

import asyncio
import gc
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from mq.daemons import exporters
from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.broker.acl.files import AclFiles
from mq.daemons.broker.beacons import Beacons
from mq.daemons.broker.config import BrokerConfig, BrokerSettings, FlushDiskType
from mq.daemons.broker.day_totals import DayTotals
from mq.daemons.broker.delay import DelayedMessages
from mq.daemons.broker.filter.bit_maps import extender
from mq.daemons.broker.filter.table import ConsumerFilters
from mq.daemons.broker.groups import Groups
from mq.daemons.broker.handlers import (
    access,
    cleaning,
    client,
    config,
    connection,
    group,
    lock,
    offset,
    query,
    recall,
    relay,
    timer,
    topic,
    transaction,
)
from mq.daemons.broker.handlers.indirect_send import IndirectSends
from mq.daemons.broker.handlers.pull import PullHandlers
from mq.daemons.broker.handlers.reply import ReplyHandlers
from mq.daemons.broker.handlers.send import SendHandlers
from mq.daemons.broker.limits import RATE_SETTING, FlushBacklog, SendRates, TopicSizes
from mq.daemons.broker.locks import QueueLocks
from mq.daemons.broker.offsets import ConsumerOffsets
from mq.daemons.broker.pop.service import PopService
from mq.daemons.broker.protection import SlowConsumers, WaterMarks
from mq.daemons.broker.registration import Registration
from mq.daemons.broker.registry import Consumers, Producers
from mq.daemons.broker.stat_items import StatItems, totals
from mq.daemons.broker.stats import BrokerStats
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.targets import SendTargets
from mq.daemons.broker.timer.service import Timer
from mq.daemons.broker.topics import Topics
from mq.daemons.broker.transactions.checks import TransactionChecks
from mq.daemons.broker.transactions.service import Transactions
from mq.daemons.broker.writer import MessageWriter
from mq.daemons.dispatch import merge
from mq.daemons.listener import Listener
from mq.daemons.service import Tasks
from mq.daemons.tls import ServerTls, server_tls

log = logging.getLogger(__name__)

# How often channels are looked at that have sent no heartbeat for channelExpiredTimeout.
EXPIRY_SECONDS = 10.0
# How soon a topic that was made for a send is saved.
TOPIC_SAVE_SECONDS = 0.2

# How often consumerFilter.json is written if a filter has changed (BrokerController.initialize).
FILTER_SAVE_SECONDS = 10.0

# How often consumerOrderInfo.json is.
POP_SAVE_SECONDS = 5.0


class Broker:
    """A broker in this process: `async with Broker(settings) as broker`.

    With `listenPort` 0 any free port is taken; `port` is the one that was. Raises OSError when it
    cannot listen and a StoreError when its store cannot be opened.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.tasks: Tasks
        self.store: MessageStore
        self.listener: Listener
        self.fast_listener: Listener
        self.access: AccessControl | None = None
        self.metrics_port = -1  # none
        self._tls: ServerTls | None = None
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

    def reload(self) -> None:
        """Read ACL files and certificates again; settings change by request."""
        if self._tls is not None:
            self._tls.reload()
        if self.access is not None:
            self.access.reload()

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
        self.access = self._access_control()
        self._tls = server_tls(settings.tls)
        self.listener = self._make_listener(settings.server.listen_port)
        self.fast_listener = self._make_listener(settings.fast_port)
        # The ports come first: whoever is already there has this store open, too.
        for listener in (self.listener, self.fast_listener):
            await listener.bind()
            parts.push_async_callback(listener.close)
        self.store = await parts.enter_async_context(
            MessageStore(lambda: settings.store, self._store_host())
        )
        store = self.store
        folder = store.root / "config"
        self.topics = Topics(folder / "topics.json", lambda: settings.broker)
        self.topics.adopt(store.queue_counts())
        parts.push_async_callback(self.topics.save_pending)
        groups = Groups(folder / "subscriptionGroup.json", lambda: settings.broker)
        offsets = self.offsets = ConsumerOffsets(folder / "consumerOffset.json")
        parts.push_async_callback(offsets.save)
        self.filters = ConsumerFilters(folder / "consumerFilter.json", lambda: settings.broker)
        if settings.store.enable_consume_queue_ext:
            store.appender.extend = extender(lambda: settings.broker, self.filters, store.queues)
        parts.push_async_callback(self.filters.save)
        self._writer = MessageWriter(lambda: settings.store, store)
        self.delayed = DelayedMessages(folder / "delayOffset.json", store, self._writer)
        parts.push_async_callback(self.delayed.save)
        self.timer: Timer | None = None
        self._writer.on_timed = self._use_timer
        parts.push_async_callback(self._close_timer)
        self.transactions = Transactions(store, self._writer, offsets, self.topics)
        parts.callback(self.transactions.save_progress)
        self.consumers = Consumers()
        self.producers = Producers()
        self._locks = QueueLocks()
        self.transaction_checks = TransactionChecks(
            lambda: settings.broker,
            lambda: settings.store,
            self.transactions,
            self._writer,
            self.topics,
            self.producers,
        )
        settings.on_change.append(lambda _: self.transaction_checks.configure())
        self.stats = BrokerStats(lambda: (store.appender.messages, store.appender.size))
        self._days = DayTotals(self.stats)
        self.figures = StatItems(
            lambda: totals(store.queues, self.stats, lambda: settings.broker),
            lambda: settings.broker,
        )
        self.guard = SlowConsumers(
            lambda: settings.broker, lambda: settings.store, self.stats, groups
        )
        self.topics.on_change.append(self._forget_deleted)
        self.tasks = await parts.enter_async_context(Tasks())
        ha_port = settings.store.ha_listen_port or self.port + 1
        self.registration = Registration(settings, self.topics, self.port, ha_port, self.tasks)
        self._make_handlers(groups, offsets)
        parts.push_async_callback(self._settle)
        self._spawn_tasks(offsets)
        for listener in (self.listener, self.fast_listener):
            await listener.start()
            parts.push_async_callback(listener.close)
        await parts.enter_async_context(self.registration)
        if settings.operation.liveness_beacon_enable:
            self.tasks.spawn(Beacons(settings, self.registration).run(), "beacons")
        if exporters.are_wanted(settings.operation):
            await self._export(parts)

    async def _export(self, parts: AsyncExitStack) -> None:
        from mq.daemons.broker.metrics import metrics_of  # only where somebody reads it
        from mq.daemons.metrics import LoopDelay

        delay = LoopDelay()
        self.tasks.spawn(delay.run(), "loop delay")
        self.metrics_port = await exporters.start_exporters(
            self.settings.operation,
            lambda: (*metrics_of(self), delay.metric()),
            self.tasks,
            parts,
        )

    def _make_listener(self, port: int) -> Listener:
        server = self.settings.server
        return Listener(
            {},
            self.settings.listen_host,
            port,
            idle_seconds=server.server_channel_max_idle_time_seconds,
            backlog=server.server_socket_backlog,
            guard=None if self.access is None else self.access.guard,
            tls=self._tls,
            slow_seconds=self.settings.operation.slow_request_millis / 1000,
            max_connections=lambda: self.settings.operation.max_connections,
            longest_wait=self._longest_wait,
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

    def _make_handlers(self, groups: Groups, offsets: ConsumerOffsets) -> None:
        settings, store, topics = self.settings, self.store, self.topics
        consumers, producers, stats = self.consumers, self.producers, self.stats
        targets = SendTargets(lambda: settings.broker, topics, groups, store)
        indirect = IndirectSends(
            lambda: settings.broker,
            topics,
            groups,
            store.appender,
            self._writer,
            self.transactions,
        )
        indirect.on_sent_back = lambda topic, group: stats.sent_back.update([(topic, group)])
        send = SendHandlers(
            lambda: settings.broker, lambda: settings.store, targets, store.appender, indirect
        )
        settings.on_change.append(lambda _: send.configure())
        self.topic_sizes = TopicSizes(store.queues, lambda: settings.operation)
        self.topic_sizes.on_change = targets.forget
        targets.over_limit = self.topic_sizes.refused
        self._pull = PullHandlers(
            lambda: settings.broker,
            lambda: settings.store,
            topics,
            groups,
            consumers,
            self.filters,
            offsets,
            store,
            stats,
        )
        settings.on_change.append(lambda _: self._pull.configure())
        admin = merge(
            access.handlers(settings, self.address, self.access),
            cleaning.handlers(topics, store),
            client.handlers(consumers, producers, self.filters, groups, topics),
            config.handlers(settings, topics, store, stats, self._days, self.delayed, self.figures),
            connection.handlers(consumers, producers),
            group.handlers(settings, groups, topics, offsets, consumers, store, stats),
            lock.handlers(self._locks),
            offset.handlers(lambda: settings.store, offsets, self.delayed, store),
            query.handlers(
                lambda: settings.store,
                consumers,
                self.filters,
                store,
                None if self.access is None else self.access.check_read,
            ),
            recall.handlers(settings, topics, self._writer),
            relay.handlers(settings, topics, offsets, consumers, store),
            ReplyHandlers(
                settings, targets, producers, self._writer, self.transactions.host
            ).handlers(),
            timer.handlers(store),
            topic.handlers(settings, topics, offsets, store, self.registration.announced),
            transaction.handlers(
                settings,
                self.transactions,
                self._writer,
                None if self.access is None else self.access.check_write,
            ),
        )
        self.pop = PopService(
            lambda: settings.broker,
            store,
            self._writer,
            topics,
            groups,
            consumers,
            offsets,
            self._pull,
            self.registration.queues_of,
            self.transactions.host,
        )
        self.listener.serve(
            merge(admin, self._pull.handlers(), self.pop.handlers()), self._pull.direct()
        )
        self.listener.serve(indirect.handlers())
        # The fast listener answers what must not wait behind pulls (Java: listenPort - 2).
        self.fast_listener.serve(admin)
        self._serve_sends(send)
        settings.on_change.append(
            lambda names: self._serve_sends(send) if RATE_SETTING in names else None
        )

    def _serve_sends(self, send: SendHandlers) -> None:
        """Take sends on both ports, behind a limit of their rate if there is one."""
        handlers, direct = send.handlers(), send.direct()
        rate = self.settings.operation.client_send_rate
        if rate:
            refusals = self.listener.refusals
            limit = SendRates(rate, lambda code, cause: refusals.update([(code, cause)]))
            handlers, direct = limit.handlers(handlers), limit.direct(direct)
        for listener in (self.listener, self.fast_listener):
            listener.serve(handlers, direct)

    def _spawn_tasks(self, offsets: ConsumerOffsets) -> None:
        broker, store = self.settings.broker, self.settings.store
        self.tasks.spawn(self.store.run(), "store")
        self.tasks.spawn(self.stats.run(), "statistics")
        self.tasks.spawn(self._days.run(), "turn of the day")
        self.tasks.spawn(self.figures.run(), "figures")
        self.tasks.spawn(self.guard.run(), "guard against slow consumers")
        self.tasks.spawn(WaterMarks(self.store).run(), "water marks")
        self.tasks.spawn(self.topic_sizes.run(), "sizes of topics")
        if store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            backlog = FlushBacklog(self.store.flusher, self.store.appender, self._broker_config)
            self.tasks.spawn(backlog.run(), "flush backlog")
        for save, seconds, what in (
            (
                offsets.save,
                lambda: broker.flush_consumer_offset_interval / 1000,
                "consumer offsets",
            ),
            (self.topics.save_pending, lambda: TOPIC_SAVE_SECONDS, "topics"),
            (self.delayed.save, lambda: store.flush_delay_offset_interval / 1000, "delay offsets"),
            (self.filters.save, lambda: FILTER_SAVE_SECONDS, "filters"),
            (self.pop.save, lambda: POP_SAVE_SECONDS, "ordered pops"),
        ):
            self.tasks.spawn(_save_again_and_again(save, seconds, what), what)
        self.tasks.spawn(self.delayed.run(), "delayed messages")
        self.tasks.spawn(self.pop.run(), "popped messages")
        self.tasks.spawn(self.transaction_checks.run(), "transaction checks")
        if Timer.is_used(self.store.root):
            self._use_timer()
        self.tasks.spawn(self._expire_clients(), "expiry of clients")
        if self.access is not None:
            self.tasks.spawn(self.access.watch(), "ACL files")
        if self._tls is not None:
            self.tasks.spawn(self._tls.watch(), "certificates")

    def _broker_config(self) -> BrokerConfig:
        return self.settings.broker

    def _longest_wait(self) -> float:
        """Seconds that a send may wait to be read; 0 for any time."""
        config = self.settings.broker
        if not config.broker_fast_failure_enable:
            return 0.0
        return config.wait_time_mills_in_send_queue / 1000

    def _use_timer(self) -> None:
        """Start the timer with the first message for it: most brokers never need its files."""
        if self.timer is None:
            settings = self.settings.store
            self.timer = Timer(lambda: self.settings.store, self.store, self._writer)
            self.tasks.spawn(self.timer.run(), "timer")
            pause = settings.timer_flush_interval_ms / 1000
            self.tasks.spawn(_save_again_and_again(self.timer.save, lambda: pause, "timer"), "save")

    def _forget_deleted(self, topic: str) -> None:
        """Drop the figures of a topic that has been deleted, if they shall go with it."""
        is_deleted = bool(topic) and self.topics.get(topic) is None
        if is_deleted and self.settings.broker.auto_delete_unused_stats:
            self.stats.forget_topic(topic)

    async def _close_timer(self) -> None:
        if self.timer is not None:
            await self.timer.close()

    async def _expire_clients(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            timeout = self.settings.broker.channel_expired_timeout / 1000
            self.consumers.expire(timeout)
            self.producers.expire(timeout)
            self._locks.expire()

    async def _settle(self) -> None:
        """Before the connections close: answer the sends that still wait for the disk."""
        self.store.appender.commit()
        await self.store.flusher.drain()
        await self._pull.close()
        await self.pop.close()
        await self.pop.save()


async def _save_again_and_again(
    save: Callable[[], Awaitable[None]], seconds: Callable[[], float], what: str
) -> None:
    """Save at intervals until cancelled. What cannot be saved now is saved the next time."""
    while True:
        await asyncio.sleep(seconds())
        try:
            await save()
        except OSError as error:
            log.error("%s cannot be saved now: %s", what, error)
