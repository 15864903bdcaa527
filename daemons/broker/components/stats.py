"""Stats component: counters, and the progress of groups."""

from dataclasses import dataclass

from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.components.clients import Clients
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_handlers import GroupHandlers
from mq.daemons.broker.groups.progress_handlers import ProgressHandlers
from mq.daemons.broker.statistics.day_totals import DayTotals
from mq.daemons.broker.statistics.stat_items import StatItems, totals
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.stores import Stores
from mq.daemons.dispatch import Handler
from mq.daemons.request_codes import handlers_of


@dataclass(frozen=True, slots=True)
class Stats:
    """The broker's statistics."""

    settings: BrokerSettings
    stores: Stores
    clients: Clients
    counters: BrokerStats
    days: DayTotals
    items: StatItems

    def works(self) -> Works:
        yield self.counters.run, "statistics"
        yield self.days.run, "turn of the day"
        yield self.items.run, "stat items"

    def handlers(self) -> dict[int, Handler]:
        settings, stores, stats = self.settings, self.stores, self.counters
        return handlers_of(
            GroupHandlers(settings, stores.groups, stores.offsets, stats),
            ProgressHandlers(
                settings,
                stores.groups,
                stores.topics,
                stores.offsets,
                self.clients.consumers,
                stores.messages,
                stats,
            ),
        )

    def metrics(self) -> Metrics:
        from mq.daemons.broker.metrics.broker import runtime, traffic

        messages = self.stores.messages
        yield from traffic(self.settings, messages.queues, self.counters, self.items)
        yield from runtime(self.settings, self.clients.address, self.counters, messages)


def make_stats(settings: BrokerSettings, stores: Stores, clients: Clients) -> Stats:
    """Make the component; it counts from the start of the process on."""
    store, topics = stores.messages, stores.topics
    counters = BrokerStats(
        lambda: (store.appender.publisher.messages, store.appender.publisher.size)
    )
    items = StatItems(lambda: totals(store.queues, counters, settings), settings)

    def forget_deleted(topic: str) -> None:
        """Drop the counters of a deleted topic, if autoDeleteUnusedStats is set."""
        is_deleted = bool(topic) and topics.get(topic) is None
        if is_deleted and settings.broker.auto_delete_unused_stats:
            counters.forget_topic(topic)

    topics.on_change.append(forget_deleted)
    return Stats(settings, stores, clients, counters, DayTotals(counters), items)
