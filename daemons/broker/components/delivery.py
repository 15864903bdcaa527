"""Delivery component: writers of messages other than plain sends."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.components.clients import Clients
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed.delay_levels import DelayedMessages
from mq.daemons.broker.delayed.recall_handlers import RecallHandlers
from mq.daemons.broker.delayed.timer import Timer
from mq.daemons.broker.delayed.timer_handlers import DelayOffsetHandlers
from mq.daemons.broker.delayed.timer_on_demand import TimerOnDemand
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.periodic import saving
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.stores import Stores
from mq.daemons.broker.transactions.checks import TransactionChecks
from mq.daemons.broker.transactions.service import Transactions
from mq.daemons.broker.transactions.transaction_handlers import TransactionHandlers
from mq.daemons.dispatch import Handler
from mq.daemons.request_codes import handlers_of
from mq.daemons.supervision import Tasks


@dataclass(frozen=True, slots=True)
class Delivery:
    """Stores messages other than plain sends: at once, later, or in a transaction.

    ``outward`` is the writer for messages that have waited: the same as ``writer``, except on a
    slave that may act as the master.
    """

    settings: BrokerSettings
    stores: Stores
    clients: Clients
    writer: MessageWriter
    outward: MessageWriter
    delayed: DelayedMessages
    timer: TimerOnDemand
    transactions: Transactions
    checks: TransactionChecks

    def works(self) -> Works:
        if is_slave(self.settings):  # its master delivers, and the results come with the log
            return
        yield from self.delayed.works()
        yield saving(
            self.delayed.save,
            lambda: self.settings.store.flush_delay_offset_interval / 1000,
            "delay offsets",
        )
        yield self.checks.run, "transaction checks"

    def handlers(self) -> dict[int, Handler]:
        access = self.clients.access
        check_write = None if access is None else access.check_write
        return handlers_of(
            DelayOffsetHandlers(self.delayed),
            RecallHandlers(
                self.settings, self.stores.topics, self.writer, self.stores.messages.appender
            ),
            TransactionHandlers(
                self.settings, self.transactions, self.stores.messages, check_write
            ),
        )

    def metrics(self) -> Metrics:
        timer = self.timer.timer
        if timer is not None:
            from mq.daemons.metrics import counter  # imported only for a scrape

            doc = "Times that the timer went back because the clock was set back."
            yield counter("mq_timer_clock_corrections_total", doc, timer.clock_corrections)

    def start_used_timer(self) -> None:
        """Start the timer of a broker that has stored messages for it before."""
        if Timer.is_used(self.stores.messages) and not is_slave(self.settings):
            self.timer.start(self.writer)


def open_delivery(
    settings: BrokerSettings,
    stores: Stores,
    clients: Clients,
    tasks: Tasks,
    parts: AsyncExitStack,
    outward: MessageWriter | None = None,
) -> Delivery:
    """Open the component; `parts` saves and closes it, in reverse order. ``outward`` is the writer
    for messages that have waited, if not this store's.
    """
    store, aside, topics = stores.messages, stores.aside, stores.topics
    timer = TimerOnDemand(settings, store, aside, tasks)
    writer = MessageWriter(settings, store, topics, on_timed=timer.start)
    outward = outward or writer
    delayed = DelayedMessages(store.root / "config" / "delayOffset.json", store, outward, aside)
    parts.push_async_callback(delayed.save)
    parts.push_async_callback(timer.close)
    slave = delayed.version.is_copy = is_slave(settings)
    transactions = Transactions(store, writer, stores.offsets, topics, has_them=not slave)
    if not slave:
        parts.callback(transactions.save_progress)
    checks = TransactionChecks(settings, transactions, writer, topics, clients.producers, aside)
    settings.on_change.append(lambda _: checks.configure())
    return Delivery(
        settings, stores, clients, writer, outward, delayed, timer, transactions, checks
    )
