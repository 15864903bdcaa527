"""Request table: which request of a broker goes to which handler, on which of its ports."""

from collections.abc import Awaitable, Callable, Mapping

from mq.daemons.broker.acl.access import AccessControl, account_of
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.handlers import (
    access,
    client,
    config,
    connection,
    group,
    lock,
    offset,
    query,
    recall,
    relay,
    retention,
    timer,
    topic,
    transaction,
)
from mq.daemons.broker.handlers.reply import ReplyHandlers
from mq.daemons.broker.overload.limits import RATE_SETTING, SendRates
from mq.daemons.broker.parts import Clients, Delivery, Services, Stats, Stores
from mq.daemons.dispatch import Dispatcher, Handler, merge


def serve(
    settings: BrokerSettings,
    admin: Mapping[int, Handler],
    services: Services,
    main: Dispatcher,
    fast: Dispatcher,
) -> None:
    """Answer on both ports. The fast one (Java: listenPort - 2) answers what must not wait behind
    pulls."""
    main.serve(
        merge(admin, services.pulls.handlers(), services.pop.handlers()), services.pulls.direct()
    )
    for dispatcher in (main, fast):
        dispatcher.serve(services.indirect_sends.handlers())
    fast.serve(admin)

    def serve_sends() -> None:
        """Take sends on both ports, behind a limit of their rate if there is one."""
        handlers, direct = services.sends.handlers(), services.sends.direct()
        rate = settings.operation.client_send_rate
        if rate:
            limit = SendRates(rate, lambda code, cause: main.refusals.update([(code, cause)]))
            handlers, direct = limit.handlers(handlers), limit.direct(direct)
        for dispatcher in (main, fast):
            dispatcher.serve(handlers, direct)

    serve_sends()
    settings.on_change.append(lambda names: serve_sends() if RATE_SETTING in names else None)


def admin_handlers(
    settings: BrokerSettings,
    address: str,
    stores: Stores,
    clients: Clients,
    delivery: Delivery,
    stats: Stats,
    services: Services,
    announced: Callable[[], Awaitable[None]],
    access_control: AccessControl | None,
    task_info: Callable[[], Mapping[str, str]],
) -> dict[int, Handler]:
    """What is neither a send nor a read of messages by consumers.

    ``address`` is the broker's own, host:port; ``announced`` waits until name servers know of a
    change of topics; ``task_info`` is shown with the runtime info.
    """
    store, topics, groups = stores.messages, stores.topics, stores.groups
    offsets, filters = stores.offsets, stores.filters
    consumers, producers = clients.consumers, clients.producers
    replies = ReplyHandlers(
        settings, services.targets, producers, delivery.writer, delivery.transactions.host
    )
    return merge(
        access.handlers(settings, address, access_control),
        retention.handlers(topics, store),
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
            stats.counters,
            stats.days,
            delivery.delayed,
            stats.items,
            task_info,
        ),
        connection.handlers(consumers, producers),
        group.handlers(settings, groups, topics, offsets, consumers, store, stats.counters),
        lock.handlers(clients.locks),
        offset.handlers(lambda: settings.store, offsets, delivery.delayed, store),
        query.handlers(
            lambda: settings.store,
            consumers,
            filters,
            store,
            None if access_control is None else access_control.check_read,
        ),
        recall.handlers(settings, topics, delivery.writer),
        relay.handlers(settings, topics, offsets, consumers, store),
        replies.handlers(),
        timer.handlers(store),
        topic.handlers(settings, topics, offsets, store, announced),
        transaction.handlers(
            settings,
            delivery.transactions,
            store,
            None if access_control is None else access_control.check_write,
        ),
    )
