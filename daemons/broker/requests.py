"""Which request of a broker goes to which handler, on which of its ports."""

from typing import TYPE_CHECKING

from mq.daemons.broker.acl.access import account_of
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
from mq.daemons.broker.limits import RATE_SETTING, SendRates, TopicSizes
from mq.daemons.broker.moved_events import OffsetMovedEvents
from mq.daemons.broker.pop.service import PopService
from mq.daemons.broker.targets import SendTargets
from mq.daemons.dispatch import Handler, merge

if TYPE_CHECKING:
    from mq.daemons.broker.app import Broker


class Requests:
    """The handlers of a broker, made from its parts."""

    def __init__(self, broker: "Broker") -> None:
        """Sets `pulls`, `pop`, `sends` and `topic_sizes` of the broker."""
        self._broker = broker
        settings, store = broker.settings, broker.store
        self._targets = SendTargets(lambda: settings.broker, broker.topics, broker.groups, store)
        self._indirect = self._indirect_sends()
        self._send = SendHandlers(
            lambda: settings.broker,
            lambda: settings.store,
            self._targets,
            store.appender,
            self._indirect,
        )
        settings.on_change.append(lambda _: self._send.configure())
        broker.topic_sizes = TopicSizes(store.queues, lambda: settings.operation)
        broker.topic_sizes.on_change = self._targets.forget
        broker.sends = self._targets
        self._targets.over_limit = broker.topic_sizes.refused
        broker.pulls = self._pull_handlers()
        broker.moved_events = OffsetMovedEvents(
            broker.writer, lambda: settings.broker.broker_name, broker.transactions.host
        )
        broker.pulls.on_moved = broker.moved_events.moved
        settings.on_change.append(lambda _: broker.pulls.configure())
        broker.pop = self._pop_service()

    def serve(self) -> None:
        """Answer on both ports. The fast one (Java: listenPort - 2) answers what must not wait
        behind pulls."""
        broker = self._broker
        admin = self._admin()
        broker.listener.dispatcher.serve(
            merge(admin, broker.pulls.handlers(), broker.pop.handlers()), broker.pulls.direct()
        )
        for listener in (broker.listener, broker.fast_listener):
            listener.dispatcher.serve(self._indirect.handlers())
        broker.fast_listener.dispatcher.serve(admin)
        self._serve_sends()
        broker.settings.on_change.append(
            lambda names: self._serve_sends() if RATE_SETTING in names else None
        )

    def _serve_sends(self) -> None:
        """Take sends on both ports, behind a limit of their rate if there is one."""
        broker = self._broker
        handlers, direct = self._send.handlers(), self._send.direct()
        rate = broker.settings.operation.client_send_rate
        if rate:
            refusals = broker.listener.dispatcher.refusals
            limit = SendRates(rate, lambda code, cause: refusals.update([(code, cause)]))
            handlers, direct = limit.handlers(handlers), limit.direct(direct)
        for listener in (broker.listener, broker.fast_listener):
            listener.dispatcher.serve(handlers, direct)

    def _indirect_sends(self) -> IndirectSends:
        broker = self._broker
        settings, stats = broker.settings, broker.stats
        indirect = IndirectSends(
            lambda: settings.broker,
            broker.topics,
            broker.groups,
            broker.store,
            broker.writer,
            broker.transactions,
        )
        if broker.access is not None:
            indirect.check_read = broker.access.check_read
        indirect.on_sent_back = lambda topic, group: stats.sent_back.update([(topic, group)])
        return indirect

    def _pull_handlers(self) -> PullHandlers:
        broker = self._broker
        settings = broker.settings
        return PullHandlers(
            lambda: settings.broker,
            lambda: settings.store,
            broker.topics,
            broker.groups,
            broker.consumers,
            broker.filters,
            broker.offsets,
            broker.store,
            broker.stats,
        )

    def _pop_service(self) -> PopService:
        broker = self._broker
        settings = broker.settings
        return PopService(
            lambda: settings.broker,
            broker.store,
            broker.writer,
            broker.topics,
            broker.groups,
            broker.consumers,
            broker.offsets,
            broker.pulls,
            broker.registration.queues_of,
            broker.transactions.host,
            broker.aside,
        )

    def _admin(self) -> dict[int, Handler]:
        """What is neither a send nor a read of messages by consumers."""
        broker = self._broker
        settings, store, topics = broker.settings, broker.store, broker.topics
        consumers, producers, groups = broker.consumers, broker.producers, broker.groups
        offsets, filters, stats, guard = (
            broker.offsets,
            broker.filters,
            broker.stats,
            broker.access,
        )
        replies = ReplyHandlers(
            settings, self._targets, producers, broker.writer, broker.transactions.host
        )
        return merge(
            access.handlers(settings, broker.address, guard),
            cleaning.handlers(topics, store),
            client.handlers(
                *(consumers, producers, filters, groups, topics),
                lambda: settings.broker,
                account_of,
                lambda: settings.operation.heartbeat_max_groups,
            ),
            config.handlers(
                settings,
                topics,
                store,
                stats,
                broker.days,
                broker.delayed,
                broker.figures,
                lambda: {**broker.tasks.info(), **broker.aside.info()},
            ),
            connection.handlers(consumers, producers),
            group.handlers(settings, groups, topics, offsets, consumers, store, stats),
            lock.handlers(broker.locks),
            offset.handlers(lambda: settings.store, offsets, broker.delayed, store),
            query.handlers(
                lambda: settings.store,
                consumers,
                filters,
                store,
                None if guard is None else guard.check_read,
            ),
            recall.handlers(settings, topics, broker.writer),
            relay.handlers(settings, topics, offsets, consumers, store),
            replies.handlers(),
            timer.handlers(store),
            topic.handlers(settings, topics, offsets, store, broker.registration.announced),
            transaction.handlers(
                settings,
                broker.transactions,
                store,
                None if guard is None else guard.check_write,
            ),
        )
