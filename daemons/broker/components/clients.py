"""Clients component: connected clients and their locks."""

import asyncio
from dataclasses import dataclass

from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.broker.acl.access_handlers import AccessHandlers
from mq.daemons.broker.clients.client_handlers import ClientHandlers, ClientRules
from mq.daemons.broker.clients.connection_handlers import ConnectionHandlers
from mq.daemons.broker.clients.lock_handlers import LockHandlers
from mq.daemons.broker.clients.locks import QueueLocks
from mq.daemons.broker.clients.registry import Consumers, Producers
from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.table import check_supported
from mq.daemons.broker.groups.relay_handlers import RelayHandlers
from mq.daemons.broker.pull.query_handlers import QueryHandlers
from mq.daemons.broker.stores import Stores
from mq.daemons.dispatch import Handler
from mq.daemons.request_codes import handlers_of

# Seconds between checks for channels without a heartbeat for channelExpiredTimeout.
EXPIRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Clients:
    """Connected clients, their permissions, and their queue locks."""

    settings: BrokerSettings
    address: str  # of the broker, host:port
    access: AccessControl | None
    stores: Stores
    consumers: Consumers
    producers: Producers
    locks: QueueLocks

    def works(self) -> Works:
        yield self._expire, "expiry of clients"

    def handlers(self) -> dict[int, Handler]:
        settings, stores, consumers = self.settings, self.stores, self.consumers
        check_read = None if self.access is None else self.access.check_read
        return handlers_of(
            AccessHandlers(settings, self.address, self.access),
            ClientHandlers(
                *(_rules(settings), consumers, self.producers),
                *(stores.filters, stores.groups, stores.topics),
                *(() if self.access is None else (self.access.reads_all,)),
            ),
            ConnectionHandlers(consumers, self.producers),
            LockHandlers(self.locks),
            QueryHandlers(
                *(settings, consumers, stores.filters, stores.messages, check_read),
                *(() if self.access is None else (self.access.reads_all,)),
            ),
            RelayHandlers(settings, stores.topics, stores.offsets, consumers, stores.messages),
        )

    def metrics(self) -> Metrics:
        from mq.daemons.broker.metrics.broker import progress

        stores = self.stores
        yield from progress(
            self.settings.broker, stores.messages, stores.offsets, self.consumers, self.producers
        )

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            timeout = self.settings.broker.channel_expired_timeout / 1000
            self.consumers.expire(timeout)
            self.producers.expire(timeout)
            self.locks.expire()


def make_clients(
    settings: BrokerSettings, address: str, stores: Stores, access: AccessControl | None = None
) -> Clients:
    """The clients of a broker that has just started: none."""
    producers = Producers() if access is None else Producers(may_have=access.may_have)
    locks = QueueLocks(lifetime=settings.broker.rebalance_lock_max_live_time / 1000)
    return Clients(settings, address, access, stores, Consumers(), producers, locks)


def _rules(settings: BrokerSettings) -> ClientRules:
    return ClientRules(
        notifies=lambda: settings.broker.notify_consumer_ids_changed_enable,
        most_groups=lambda: settings.operation.heartbeat_max_groups,
        check_expression=lambda kind: check_supported(settings.broker, kind),
    )
