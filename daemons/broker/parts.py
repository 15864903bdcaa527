"""Wiring: the parts of a broker, in groups of one subject, each made by one function.

`works` of a group are its tasks, each until cancelled, and their names.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.broker.aside import SetAside
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.day_totals import DayTotals
from mq.daemons.broker.delay import DelayedMessages
from mq.daemons.broker.filter.bit_maps import extender
from mq.daemons.broker.filter.subscriptions import Subscriptions
from mq.daemons.broker.filter.table import ConsumerFilters
from mq.daemons.broker.groups import Groups
from mq.daemons.broker.handlers.assignment import QueuesOf
from mq.daemons.broker.handlers.indirect_send import IndirectSends
from mq.daemons.broker.handlers.pull import PullHandlers
from mq.daemons.broker.handlers.send import SendHandlers
from mq.daemons.broker.locks import QueueLocks
from mq.daemons.broker.moved_events import OffsetMovedEvents
from mq.daemons.broker.offsets import ConsumerOffsets
from mq.daemons.broker.overload.limits import FlushBacklog, TopicSizes
from mq.daemons.broker.overload.protection import SlowConsumers, WaterMarks
from mq.daemons.broker.periodic import saving
from mq.daemons.broker.pop.service import PopService
from mq.daemons.broker.queue_reader import QueueReader
from mq.daemons.broker.registry import Consumers, Producers
from mq.daemons.broker.stat_items import StatItems, totals
from mq.daemons.broker.stats import BrokerStats
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from mq.daemons.broker.targets import SendTargets
from mq.daemons.broker.timer.on_demand import TimerOnDemand
from mq.daemons.broker.timer.service import Timer
from mq.daemons.broker.topics import Topics
from mq.daemons.broker.transactions.checks import TransactionChecks
from mq.daemons.broker.transactions.service import Transactions
from mq.daemons.broker.writer import MessageWriter
from mq.daemons.supervision import Tasks, Work

# How often channels are looked at that have sent no heartbeat for channelExpiredTimeout.
EXPIRY_SECONDS = 10.0
# How soon topics and groups that could not be saved are saved again.
SAVE_AGAIN_SECONDS = 1.0
# How often consumerFilter.json is written if a filter has changed (BrokerController.initialize),
# and consumerOrderInfo.json.
FILTER_SAVE_SECONDS = 10.0
POP_SAVE_SECONDS = 5.0
ASIDE_SAVE_SECONDS = 1.0

Works = Iterator[tuple[Work, str]]


@dataclass(frozen=True, slots=True)
class Stores:
    """What is on the disk: messages, and what is known of topics and groups."""

    settings: BrokerSettings
    messages: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    filters: ConsumerFilters
    aside: SetAside

    def works(self) -> Works:
        settings, messages = self.settings, self.messages
        yield WaterMarks(messages).run, "water marks"
        if settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            backlog = FlushBacklog(messages.flusher, messages.appender, lambda: settings.broker)
            yield backlog.run, "flush backlog"
        yield from messages.works()
        yield saving(
            self.offsets.save,
            lambda: settings.broker.flush_consumer_offset_interval / 1000,
            "consumer offsets",
        )
        # What could not be saved when it was made.
        yield saving(self.topics.save_pending, lambda: SAVE_AGAIN_SECONDS, "topics")
        yield saving(self.groups.save_pending, lambda: SAVE_AGAIN_SECONDS, "subscription groups")
        yield saving(self.filters.save, lambda: FILTER_SAVE_SECONDS, "filters")
        yield saving(self.aside.save, lambda: ASIDE_SAVE_SECONDS, "what was set aside")


async def open_stores(settings: BrokerSettings, host: bytes, parts: AsyncExitStack) -> Stores:
    """Open what is on the disk; `parts` saves and closes it, in reverse.

    ``host`` is the address that every record holds. Raises StoreError.
    """
    store = await parts.enter_async_context(MessageStore(lambda: settings.store, host))
    folder = store.root / "config"
    topics = Topics(folder / "topics.json", lambda: settings.broker)
    topics.adopt(store.queue_counts())
    topics.most = lambda: settings.operation.max_auto_created_topics
    parts.push_async_callback(topics.file.close)
    groups = Groups(folder / "subscriptionGroup.json", lambda: settings.broker)
    groups.most = lambda: settings.operation.max_auto_created_groups
    parts.push_async_callback(groups.file.close)
    offsets = ConsumerOffsets(folder / "consumerOffset.json")
    parts.push_async_callback(offsets.save)
    filters = ConsumerFilters(folder / "consumerFilter.json", lambda: settings.broker)
    if settings.store.enable_consume_queue_ext:
        store.appender.extend = extender(lambda: settings.broker, filters, store.queues)
    parts.push_async_callback(filters.save)
    aside = SetAside(store)
    parts.push_async_callback(aside.save)
    return Stores(settings, store, topics, groups, offsets, filters, aside)


@dataclass(frozen=True, slots=True)
class Clients:
    """Who is connected, and what they have locked."""

    settings: BrokerSettings
    consumers: Consumers
    producers: Producers
    locks: QueueLocks

    def works(self) -> Works:
        yield self._expire, "expiry of clients"

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            timeout = self.settings.broker.channel_expired_timeout / 1000
            self.consumers.expire(timeout)
            self.producers.expire(timeout)
            self.locks.expire()


def make_clients(settings: BrokerSettings, access: AccessControl | None) -> Clients:
    """The clients of a broker that has just started: none."""
    producers = Producers() if access is None else Producers(may_have=access.may_have)
    locks = QueueLocks(lifetime=settings.broker.rebalance_lock_max_live_time / 1000)
    return Clients(settings, Consumers(), producers, locks)


@dataclass(frozen=True, slots=True)
class Stats:
    """What is counted."""

    counters: BrokerStats
    days: DayTotals
    items: StatItems

    def works(self) -> Works:
        yield self.counters.run, "statistics"
        yield self.days.run, "turn of the day"
        yield self.items.run, "figures"


def make_stats(settings: BrokerSettings, stores: Stores) -> Stats:
    """Counters from the start of the process on."""
    store, topics = stores.messages, stores.topics
    counters = BrokerStats(lambda: (store.appender.messages, store.appender.size))
    items = StatItems(
        lambda: totals(store.queues, counters, lambda: settings.broker), lambda: settings.broker
    )

    def forget_deleted(topic: str) -> None:
        """Drop what was counted of a topic that has been deleted, if it shall go with it."""
        is_deleted = bool(topic) and topics.get(topic) is None
        if is_deleted and settings.broker.auto_delete_unused_stats:
            counters.forget_topic(topic)

    topics.on_change.append(forget_deleted)
    return Stats(counters, DayTotals(counters), items)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What puts messages into queues beside plain sends: at once, later, or with a transaction."""

    settings: BrokerSettings
    writer: MessageWriter
    delayed: DelayedMessages
    timer: TimerOnDemand
    transactions: Transactions
    checks: TransactionChecks

    def works(self) -> Works:
        yield from self.delayed.works()
        yield saving(
            self.delayed.save,
            lambda: self.settings.store.flush_delay_offset_interval / 1000,
            "delay offsets",
        )
        yield self.checks.run, "transaction checks"


def open_delivery(
    settings: BrokerSettings, stores: Stores, clients: Clients, tasks: Tasks, parts: AsyncExitStack
) -> Delivery:
    """Open what waits for its time; `parts` saves and closes it, in reverse."""
    store, aside, topics = stores.messages, stores.aside, stores.topics
    timer = TimerOnDemand(settings, store, aside, tasks)
    writer = MessageWriter(lambda: settings.store, store, topics, on_timed=timer.start)
    delayed = DelayedMessages(store.root / "config" / "delayOffset.json", store, writer, aside)
    parts.push_async_callback(delayed.save)
    parts.push_async_callback(timer.close)
    transactions = Transactions(store, writer, stores.offsets, topics)
    parts.callback(transactions.save_progress)
    checks = TransactionChecks(
        lambda: settings.broker,
        lambda: settings.store,
        transactions,
        writer,
        topics,
        clients.producers,
        aside,
    )
    settings.on_change.append(lambda _: checks.configure())
    return Delivery(settings, writer, delayed, timer, transactions, checks)


def start_used_timer(stores: Stores, delivery: Delivery) -> None:
    """Start the timer of a broker that has had messages for it."""
    if Timer.is_used(stores.messages.root):
        delivery.timer.start(delivery.writer)


@dataclass(frozen=True, slots=True)
class Services:
    """What answers sends, pulls and pops, and what keeps them within limits."""

    targets: SendTargets
    sends: SendHandlers
    indirect_sends: IndirectSends
    pulls: PullHandlers
    subscriptions: Subscriptions
    pop: PopService
    topic_sizes: TopicSizes
    moved_events: OffsetMovedEvents
    slow_consumers: SlowConsumers

    def works(self) -> Works:
        yield self.slow_consumers.run, "guard against slow consumers"
        yield self.topic_sizes.run, "sizes of topics"
        yield self.pop.run, "popped messages"
        yield saving(self.pop.save, lambda: POP_SAVE_SECONDS, "ordered pops")

    async def end_reads(self) -> None:
        """Finish what is being read for connections."""
        await self.pulls.close()
        await self.pop.close()
        await self.pop.save()


def make_services(
    settings: BrokerSettings,
    stores: Stores,
    clients: Clients,
    delivery: Delivery,
    stats: Stats,
    queues_of: QueuesOf,
    access: AccessControl | None = None,
) -> Services:
    """The services of a broker; ``queues_of`` asks name servers for the queues of a topic."""
    store, topics, groups, counters = stores.messages, stores.topics, stores.groups, stats.counters
    sizes = TopicSizes(store.queues, lambda: settings.operation)
    targets = SendTargets(lambda: settings.broker, topics, groups, store, sizes.refused)
    sizes.on_change.append(targets.forget)
    indirect = IndirectSends(
        lambda: settings.broker,
        topics,
        groups,
        store,
        delivery.writer,
        delivery.transactions,
        on_sent_back=lambda topic, group: counters.sent_back.update([(topic, group)]),
        check_read=(lambda *_: None) if access is None else access.check_read,
    )
    sends = SendHandlers(
        lambda: settings.broker, lambda: settings.store, targets, store.appender, indirect
    )
    settings.on_change.append(lambda _: sends.configure())
    host = delivery.transactions.host
    events = OffsetMovedEvents(delivery.writer, lambda: settings.broker.broker_name, host)
    reader = QueueReader(lambda: settings.store, store, counters)
    subscriptions = Subscriptions(clients.consumers, stores.filters, store, reader.warm_bytes)
    pulls = PullHandlers(
        lambda: settings.broker,
        lambda: settings.store,
        topics,
        groups,
        clients.consumers,
        stores.offsets,
        store,
        reader,
        subscriptions,
        counters,
        on_moved=events.moved,
    )
    settings.on_change.append(lambda _: pulls.configure())
    pop = PopService(
        lambda: settings.broker,
        store,
        delivery.writer,
        topics,
        groups,
        clients.consumers,
        stores.offsets,
        reader,
        subscriptions,
        queues_of,
        host,
        stores.aside,
    )
    slow = SlowConsumers(lambda: settings.broker, lambda: settings.store, counters, groups)
    return Services(targets, sends, indirect, pulls, subscriptions, pop, sizes, events, slow)
