"""Replication component: the port for slaves, the waits for their acks, and the connection to a
master.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from mq.daemons.broker.component import Metrics, Works
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delayed.delay_levels import DelayedMessages
from mq.daemons.broker.periodic import saving
from mq.daemons.broker.replication.acks import InSyncAcks, SlaveAcks
from mq.daemons.broker.replication.controlled import ControlledRole, Controllers
from mq.daemons.broker.replication.controlled_connection import ControlledConnection
from mq.daemons.broker.replication.controlled_slave import ControlledSlave
from mq.daemons.broker.replication.epochs import Epochs
from mq.daemons.broker.replication.ha_handlers import EpochHandlers, HaHandlers
from mq.daemons.broker.replication.in_sync_gate import InSyncGate
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.daemons.broker.replication.slave import HaSlave, OnCut
from mq.daemons.broker.replication.sync_state import SyncState
from mq.daemons.broker.store import Appender, Batch, ConfirmOffset
from mq.daemons.broker.store_config import BrokerRole
from mq.daemons.broker.stores import Stores
from mq.daemons.dispatch import Handler
from mq.daemons.request_codes import handlers_of

# Seconds between removals of the epochs of deleted files; both are few.
EPOCHS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ControllerReplication:
    """The objects of a broker whose replica set has controllers."""

    role: ControlledRole
    controllers: Controllers
    bound: ConfirmOffset


def bound_of(settings: BrokerSettings, role: ControlledRole) -> ConfirmOffset:
    """The initial confirm offset of a role: a master that waits for no slave confirms all."""
    waits = settings.store.all_ack_in_sync_state_set and role.members - {role.broker_id}
    return ConfirmOffset(is_open=role.is_master and not waits)


@dataclass(frozen=True, slots=True)
class Replication:
    """Moves the log from a master to its slaves.

    ``slave`` exists on a slave, ``acks`` on a master whose senders wait for slaves, ``epochs`` with
    controllers, and ``state`` with controllers on the master.
    """

    settings: BrokerSettings
    master: HaMaster
    acks: SlaveAcks | None
    slave: HaSlave | None
    epochs: Epochs | None = None
    state: SyncState | None = None
    bound: ConfirmOffset | None = None

    @property
    def last_epoch(self) -> int:
        """The number of the last epoch in the log, -1 if there is none."""
        last = None if self.epochs is None else self.epochs.last
        return -1 if last is None else last.number

    @property
    def confirmed(self) -> int:
        """The physical offset up to which consumers may read."""
        return self.master.log.written if self.bound is None else self.bound.offset

    def works(self) -> Works:
        if self.slave is not None:
            yield self.slave.run, "replication"
        if self.state is not None:
            yield self.state.run, "sync state set"
        if self.epochs is not None:
            yield saving(self._forget_epochs, lambda: EPOCHS_SECONDS, "epochs")

    async def _forget_epochs(self) -> None:
        assert self.epochs is not None
        self.epochs.drop_before(self.master.log.minimum)

    def handlers(self) -> dict[int, Handler]:
        return handlers_of(
            HaHandlers(self.settings, self.master, self.slave, self.state),
            EpochHandlers(self.settings, self.master, self.epochs),
        )

    def metrics(self) -> Metrics:
        from mq.daemons.broker.replication.replication_metrics import controlled, replication

        yield from replication(self.master, self.acks, self.slave)
        if self.epochs is not None and self.bound is not None:
            yield from controlled(self.master, self.epochs, self.bound, self.state)

    async def settle(self, seconds: float) -> None:
        """Before the connections close, let slaves receive the log, for a limited time."""
        if self.state is not None:
            self.state.close()
        if self.acks is not None:
            await self.acks.drain(seconds)


async def open_replication(
    settings: BrokerSettings,
    stores: Stores,
    master: HaMaster,
    addresses: MasterAddresses,
    parts: AsyncExitStack,
    delayed: DelayedMessages,
    control: ControllerReplication | None = None,
) -> Replication:
    """Open the port for slaves, which is bound already; `parts` closes it. Raises OSError."""
    store, appender = stores.messages, stores.messages.appender
    master.log = store.log
    appender.on_written = master.written

    def cut() -> None:
        """The store has lost its end: slaves of this slave, groups and delay levels may be after
        it.
        """
        master.drop_all()
        stores.offsets.go_back_to_ends(store.max_offset if control is None else store.end_offset)
        delayed.go_back_to_ends()

    if control is not None:
        replication = _controlled(settings, stores, master, addresses, control, cut, parts)
    else:
        if appender.await_flush is not None:
            _wait_for_the_disk(appender, master)
        acks = slave = None
        if settings.store.broker_role is BrokerRole.SYNC_MASTER:
            acks = appender.publisher.slaves = SlaveAcks(settings, appender, master.nearest)
            master.on_ack = acks.acknowledged
            master.is_prompt = True
            enough = InSyncGate(settings, master, appender)
            master.acks_needed, master.on_slaves = enough.acks_needed, enough.update
            settings.on_change.append(lambda _: enough.update())
            enough.update()
        elif settings.store.broker_role is BrokerRole.SLAVE:
            slave = HaSlave(settings, store, addresses, cut)
        replication = Replication(settings, master, acks, slave)
    await master.start()
    parts.push_async_callback(master.close)
    return replication


def _controlled(
    settings: BrokerSettings,
    stores: Stores,
    master: HaMaster,
    addresses: MasterAddresses,
    control: ControllerReplication,
    cut: OnCut,
    parts: AsyncExitStack,
) -> Replication:
    store, appender = stores.messages, stores.messages.appender
    role, bound = control.role, control.bound
    epochs = Epochs(settings.store.epoch_path)
    epochs.load(store.log.written)
    if not role.is_master:
        master.closed_because = "this broker is a slave"
        slave = ControlledSlave(settings, store, addresses, role, epochs, bound, cut)
        return Replication(settings, master, None, slave, epochs, None, bound)
    is_whole = not store.report.machine_crashed
    epochs.begin(role.master_epoch, store.log.minimum, store.log.written, is_whole=is_whole)
    state = SyncState(settings, role, store.log, appender, bound, epochs, control.controllers)
    parts.callback(state.close)
    state.acks = appender.publisher.slaves = InSyncAcks(settings, appender, state.covered)
    master.connect = partial(ControlledConnection, master, state)
    master.is_prompt = True

    def written() -> None:
        state.written()
        master.written()

    appender.on_written = written
    if appender.await_flush is not None:
        store.flusher.on_flushed = state.advance
    settings.on_change.append(lambda _: state.check_size())
    return Replication(settings, master, state.acks, None, epochs, state, bound)


def _wait_for_the_disk(appender: Appender, master: HaMaster) -> None:
    """With SYNC_FLUSH a batch is published when it is on the disk. (With controllers, slaves
    deliver nothing before it is confirmed.)
    """
    master.waits_for_disk = True
    on_published = appender.publisher.on_published

    def published(batch: Batch) -> None:
        on_published(batch)
        master.written()

    appender.publisher.on_published = published
