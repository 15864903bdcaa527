"""Services component: sends, pulls and pops."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mq.daemons.broker.admin.config_handlers import StatsHandlers
from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.components.clients import Clients
from mq.daemons.broker.components.delivery import Delivery
from mq.daemons.broker.components.pop import PopService
from mq.daemons.broker.components.stats import Stats
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.dispatch.limits import SlowConsumers, TopicSizes
from mq.daemons.broker.periodic import saving
from mq.daemons.broker.pull.moved_events import OffsetMovedEvents
from mq.daemons.broker.pull.pull_handlers import PullHandlers
from mq.daemons.broker.pull.queue_reader import QueueReader
from mq.daemons.broker.pull.snode_handlers import SnodeHandlers
from mq.daemons.broker.pull.subscriptions import Subscriptions
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.send.indirect_send import IndirectSends
from mq.daemons.broker.send.reply_handlers import ReplyHandlers
from mq.daemons.broker.send.send_handlers import SendHandlers
from mq.daemons.broker.send.targets import SendTargets
from mq.daemons.broker.stores import Stores
from mq.daemons.broker.topics.topic_handlers import TopicHandlers
from mq.daemons.dispatch import Handler
from mq.daemons.metrics import gauge
from mq.daemons.request_codes import handlers_of
from mq.daemons.supervision import Tasks
from mq.protocol.bodies import MessageQueue

# Seconds between writes of consumerOrderInfo.json if it has changed.
POP_SAVE_SECONDS = 5.0


class NameServers(Protocol):
    """The name servers as services use them: the broker's Registration."""

    async def announced(self) -> None:
        """Wait until name servers have all topic changes so far."""

    async def queues_of(self, topic: str) -> Sequence[MessageQueue] | None:
        """The queues of a topic in the whole cluster; None for a topic that does not exist."""


@dataclass(frozen=True, slots=True)
class Services:
    """Serves sends, pulls and pops, and keeps them within limits."""

    settings: BrokerSettings
    stores: Stores
    clients: Clients
    stats: Stats
    delivery: Delivery
    name_servers: NameServers
    tasks: Tasks
    targets: SendTargets
    sends: SendHandlers
    indirect_sends: IndirectSends
    pulls: PullHandlers
    subscriptions: Subscriptions
    pop: PopService
    topic_sizes: TopicSizes
    moved_events: OffsetMovedEvents
    slow_consumers: SlowConsumers
    # Runtime info of other components.
    runtime_info: list[Callable[[], Mapping[str, str]]] = field(default_factory=list)

    def works(self) -> Works:
        yield self.topic_sizes.run, "sizes of topics"
        if is_slave(self.settings):  # the groups and their pops are those of the master
            return
        yield self.slow_consumers.run, "guard against slow consumers"
        yield self.pop.run, "popped messages"
        yield saving(self.pop.save, lambda: POP_SAVE_SECONDS, "ordered pops")

    def handlers(self) -> dict[int, Handler]:
        settings, stores, stats, delivery = self.settings, self.stores, self.stats, self.delivery
        store, topics = stores.messages, stores.topics
        return handlers_of(
            TopicHandlers(settings, topics, stores.offsets, store, self.name_servers.announced),
            StatsHandlers(
                settings, store, stats.counters, stats.days, stats.items, self._runtime_info
            ),
            ReplyHandlers(
                settings,
                self.targets,
                self.clients.producers,
                delivery.writer,
                delivery.transactions.host,
            ),
            self.indirect_sends,
        )

    def snode_handlers(self) -> SnodeHandlers:
        """The handlers of the snodes' dialect."""
        stores = self.stores
        return SnodeHandlers(self.settings, stores.groups, stores.topics, self.pulls)

    def metrics(self) -> Metrics:
        doc = "1 while the native path answers plain pulls, 0 while Python does."
        yield gauge("mq_native_pulls", doc, float(self.pulls.native.is_taken))

    def _runtime_info(self) -> Mapping[str, str]:
        info = {
            **self.delivery.delayed.running_info(),
            **self.tasks.info(),
            **self.stores.aside.info(),
        }
        for report in self.runtime_info:
            info.update(report())
        return info

    async def end_reads(self) -> None:
        """Finish the reads in progress."""
        await self.pulls.close()
        await self.pop.close()
        await self.pop.save()


def make_services(
    settings: BrokerSettings,
    stores: Stores,
    clients: Clients,
    stats: Stats,
    delivery: Delivery,
    name_servers: NameServers,
    tasks: Tasks,
) -> Services:
    """Make the component."""
    store, counters = stores.messages, stats.counters
    sizes = TopicSizes(store.queues, settings)
    targets = SendTargets(settings, stores.topics, stores.groups, store, sizes.refused)
    sizes.on_change.append(targets.forget)
    indirect = _indirect_sends(settings, stores, clients, stats, delivery)
    sends = SendHandlers(settings, targets, store.appender, indirect)
    settings.on_change.append(lambda _: sends.configure())
    reader = QueueReader(settings, store, counters)
    subscriptions = Subscriptions(settings, clients.consumers, stores.filters, store)
    events = OffsetMovedEvents(delivery.writer, settings, delivery.transactions.host)
    pulls = PullHandlers(
        settings,
        stores.topics,
        stores.groups,
        clients.consumers,
        stores.offsets,
        store,
        reader,
        subscriptions,
        counters,
        on_moved=events.moved,
    )
    settings.on_change.append(lambda _: pulls.configure())
    return Services(
        settings,
        stores,
        clients,
        stats,
        delivery,
        name_servers,
        tasks,
        targets,
        sends,
        indirect,
        pulls,
        subscriptions,
        PopService(
            settings, stores, clients, delivery, reader, subscriptions, name_servers.queues_of
        ),
        sizes,
        events,
        SlowConsumers(settings, counters, stores.groups),
    )


def _indirect_sends(
    settings: BrokerSettings, stores: Stores, clients: Clients, stats: Stats, delivery: Delivery
) -> IndirectSends:
    access, counters = clients.access, stats.counters
    return IndirectSends(
        settings,
        stores.topics,
        stores.groups,
        stores.messages,
        delivery.writer,
        delivery.transactions,
        on_sent_back=lambda topic, group: counters.sent_back.update([(topic, group)]),
        check_read=(lambda *_: None) if access is None else access.check_read,
    )
