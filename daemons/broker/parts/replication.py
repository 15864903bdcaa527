"""Replication: the port for slaves, who waits for them, and the connection to a master."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.handlers.ha import HaHandlers
from mq.daemons.broker.parts.group import Metrics, Works
from mq.daemons.broker.parts.stores import Stores
from mq.daemons.broker.replication.acks import SlaveAcks
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.daemons.broker.replication.slave import HaSlave
from mq.daemons.broker.store_config import BrokerRole
from mq.daemons.dispatch import Handler
from mq.daemons.serving import handlers_of


@dataclass(frozen=True, slots=True)
class Replication:
    """What moves the log from a master to its slaves. ``slave`` is there on a slave, ``acks`` on a
    master whose senders wait for slaves."""

    settings: BrokerSettings
    master: HaMaster
    acks: SlaveAcks | None
    slave: HaSlave | None

    def works(self) -> Works:
        if self.slave is not None:
            yield self.slave.run, "replication"

    def handlers(self) -> dict[int, Handler]:
        return handlers_of(HaHandlers(self.settings, self.master, self.slave))

    def metrics(self) -> Metrics:
        from mq.daemons.broker.metrics.replication import replication

        yield from replication(self.master, self.acks, self.slave)

    async def settle(self, seconds: float) -> None:
        """Before the connections close: let slaves have what was sent, but not for long."""
        if self.acks is not None:
            await self.acks.settle(seconds)


async def open_replication(
    settings: BrokerSettings,
    stores: Stores,
    master: HaMaster,
    addresses: MasterAddresses,
    parts: AsyncExitStack,
) -> Replication:
    """Let slaves connect to a port that is bound; `parts` closes it."""
    store, appender = stores.messages, stores.messages.appender
    master.log = store.log
    appender.on_written = master.written
    acks = slave = None
    if settings.store.broker_role is BrokerRole.SYNC_MASTER:
        acks = appender.slaves = SlaveAcks(settings, appender, master.nearest)
        master.on_ack = acks.acknowledged
        master.is_prompt = True
    elif settings.store.broker_role is BrokerRole.SLAVE:

        def cut() -> None:
            """The store has lost its end: slaves of this slave, and groups, may be beyond it."""
            master.drop_all()
            stores.offsets.go_back_to_ends(store.max_offset)

        slave = HaSlave(settings, store, addresses, cut)
    await master.start()
    parts.push_async_callback(master.close)
    return Replication(settings, master, acks, slave)
