"""`mq broker` under controllers (enableControllerMode): runs one broker for each role, in sequence.

Nothing listens until the controllers have assigned a role. When they assign another one, the broker
is stopped and started in the new role: both steps are short, and every crash takes them, too. The
membership, its connections to the controllers and the heartbeats continue meanwhile.

A broker that cannot start in its role sends no heartbeats until it tries again, so that the
controllers elect another one. The first start is different: the operator has to fix its error,
which ends the daemon.

A broker also withdraws if its machine has crashed and it returns so soon that it still is master:
with ASYNC_FLUSH it may lack messages that all in-sync replicas have acknowledged, and they would
truncate these. Then one of them is elected, or, if none of them is alive, this broker in another
epoch.

The controllers elect among in-sync replicas by log position: how far a broker's log reaches.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from mq.daemons.broker.app import Broker
from mq.daemons.broker.component import Metrics
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.failover.membership.controllers import ControllerGroup
from mq.daemons.broker.failover.membership.master_ha import MasterHa
from mq.daemons.broker.failover.membership.member import MasterControllers, Member, describe
from mq.daemons.broker.replication.controlled import ControlledRole
from mq.daemons.broker.replication.epochs import decode
from mq.daemons.broker.store import Checkpoint, layout, machine_has_crashed
from mq.daemons.broker.store_config import BrokerRole, FlushDiskType
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.state_file import read_with_backup
from mq.daemons.supervision import Tasks
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# The daemon reports that it is ready after this many seconds without a role, although it serves
# nothing yet: controllers may be away for any time, and a supervisor would treat a longer wait as a
# failure.
READY_SECONDS = 10.0
# Seconds between two questions to the controllers while nothing arrives from the master.
POLL_SECONDS = 0.5
# Seconds between two attempts to take a role; the pause doubles.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
# Added to the heartbeat timeout: after that a Java controller, too, treats a broker as dead whose
# first connection has not ended.
_MISSED_SECONDS = 1.0


class LogPosition(NamedTuple):
    """The epoch of the last record, the end of the log, and the confirm offset; -1 for unknown
    values.
    """

    epoch: int
    max_offset: int
    confirm_offset: int


NOTHING = LogPosition(-1, -1, -1)


def position_on_disk(settings: BrokerSettings) -> LogPosition:
    """The log position of a broker that has not started yet, from what is certainly on its disk;
    the log may reach further. Runs in a thread. Raises OSError.
    """
    checkpoint = Checkpoint(Path(settings.store.store_path_root_dir) / layout.CHECKPOINT_FILE)
    checkpoint.load()
    end = checkpoint.safe_offset
    epochs = read_with_backup(settings.store.epoch_path, decode) or []
    there = [epoch.number for epoch in epochs if epoch.start <= end]
    if not there:
        return NOTHING
    return LogPosition(there[-1], end, min(end, checkpoint.confirm_offset))


def may_have_lost_its_end(settings: BrokerSettings) -> bool:
    """Whether a broker that has not started yet may lack acknowledged messages that other in-sync
    replicas have, because its machine crashed before they were flushed. Runs in a thread. Raises
    OSError.
    """
    store = settings.store
    is_flushed = store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    if is_flushed or not store.all_ack_in_sync_state_set:
        return False
    return machine_has_crashed(Path(store.store_path_root_dir))


def position_of(broker: Broker) -> LogPosition:
    """The log position of a running broker."""
    replication = broker.replication
    return LogPosition(
        replication.last_epoch, broker.stores.messages.log.written, replication.confirmed
    )


class ControlledBroker(Lifecycle):
    """A broker whose role is assigned by controllers: `async with ControlledBroker(settings)`.

    ``broker`` is the running one, None without a role or while the role changes. Entering waits for
    the first role, for a limited time; raises as `Broker`, and CannotStart for a store that belongs
    to another broker.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.broker: Broker | None = None
        self.tasks = Tasks()
        self._settings = settings
        self._group = ControllerGroup(settings)
        self.member = Member(settings, self._group, self._heartbeat, self.tasks)
        self._position = NOTHING  # of the broker that ran last
        # the times for which it withdraws while it is still master
        self._withdrawals: list[float] = []
        self._withdrawn_epoch = -1  # the epoch in which it withdraws
        self._stopping = asyncio.Event()
        self._served = asyncio.Event()  # set when a role has been taken
        self._is_entered = False
        self._running: asyncio.Task[None]

    async def _start(self, parts: AsyncExitStack) -> None:
        await self.member.check_identity()
        self._position = await asyncio.to_thread(position_on_disk, self._settings)
        if await asyncio.to_thread(may_have_lost_its_end, self._settings):
            silence = self._settings.broker.controller_heart_beat_timeout_mills / 1000
            self._withdrawals = [FIRST_PAUSE, silence + _MISSED_SECONDS]
        await self._group.open()
        parts.push_async_callback(self._group.close)
        await parts.enter_async_context(self.tasks)
        self.tasks.spawn(self.member.run, "membership")
        self.tasks.spawn(self.member.watch_leader, "leader of the controllers")
        self.tasks.spawn(self.member.watch_lease, "lease of the master")
        self._running = asyncio.create_task(self._run())
        parts.push_async_callback(self._end)
        await self._wait_for_first_role()
        self._is_entered = True

    def stop_starting(self) -> None:
        """End entering soon although there is no role yet."""
        self._stopping.set()

    async def _wait_for_first_role(self) -> None:
        waiting = [asyncio.ensure_future(one.wait()) for one in (self._served, self._stopping)]
        try:
            await asyncio.wait(
                (*waiting, self._running),
                timeout=READY_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for one in waiting:
                one.cancel()
        if self._running.done():
            self._running.result()

    async def _end(self) -> None:
        """Stop the broker before the connections to the controllers close."""
        self._stopping.set()
        await asyncio.wait((self._running,))
        if not self._running.cancelled() and (error := self._running.exception()) is not None:
            log.debug("the broker has ended", exc_info=error)  # reported when it was entered

    # one role after another ---------------------------------------------------------------------

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while (role := await self._next_role()) is not None:
            if self._must_withdraw(role):
                await self._withdraw(self._withdrawals.pop(0))
                continue
            self._withdrawals.clear()
            try:
                await self._serve(role)
                pause = FIRST_PAUSE
            except Exception as error:
                if not self._is_entered:
                    raise
                log.critical("cannot be %s: %s", describe(role), error, exc_info=error)
                await self._withdraw(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _must_withdraw(self, role: ControlledRole) -> bool:
        """Whether another member has to be elected, which may have messages that are missing
        here."""
        if not self._withdrawals or not role.is_master:
            return False
        if self._withdrawn_epoch < 0:
            if not role.members - {role.broker_id}:
                return False
            self._withdrawn_epoch = role.master_epoch
            log.warning(
                "the machine of %s has crashed: other in-sync replicas may have messages that are "
                "lost here; withdrawing, so that one of them is elected instead of the master of "
                "epoch %d",
                *(self.member.address, role.master_epoch),
            )
        return role.master_epoch == self._withdrawn_epoch

    async def _next_role(self) -> ControlledRole | None:
        """The role to take now; None if the daemon stops."""
        while self.member.role is None and not self._stopping.is_set():
            await self._changed_or_stopping()
        return None if self._stopping.is_set() else self.member.role

    async def _changed_or_stopping(self) -> None:
        self.member.changed.clear()
        waiting = [
            asyncio.ensure_future(one.wait()) for one in (self.member.changed, self._stopping)
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def _serve(self, role: ControlledRole) -> None:
        """Serve a role until it changes or the daemon stops."""
        master = MasterHa(role, self._settings)
        known = role
        if not role.is_master and role.master_address:
            known = dataclasses.replace(role, master_ha_address=await master.find_once())
        settings = self._settings = self._settings.in_role(
            BrokerRole.SYNC_MASTER if role.is_master else BrokerRole.SLAVE,
            MASTER_ID if role.is_master else role.broker_id,
        )
        broker = Broker(settings, known, MasterControllers(self.member, role))
        broker.tasks.failures = self.tasks.failures
        broker.master_addresses.flush_offset = master.flush_offset
        broker.on_role_notice = self.member.poll_soon
        broker.member_metrics = self._figures
        async with broker:
            self.broker = broker
            log.info("%s is %s", broker.address, describe(role))
            if self._served.is_set():
                log.info("%s", broker.ready_text())
            self._served.set()
            if broker.replication.slave is not None:
                broker.tasks.spawn(lambda: self._poll_while_alone(broker), "news of the master")
            if known.master_address and not known.master_ha_address and not role.is_master:
                broker.tasks.spawn(
                    lambda: master.find(broker.master_addresses), "address of the master's log"
                )
            try:
                while self.member.role is role and not self._stopping.is_set():
                    await self._changed_or_stopping()
            finally:
                self._position = position_of(broker)
                self.broker = None
                # A hanging name server would delay the new role; it sees the end of the connection
                # anyway.
                broker.registration.says_farewell = self._stopping.is_set()

    async def _poll_while_alone(self, broker: Broker) -> None:
        """Ask the controllers repeatedly while nothing arrives from the master: the notice of a new
        master may be lost, or be rejected (aclEnable).
        """
        slave = broker.replication.slave
        while slave is not None:
            await asyncio.sleep(POLL_SECONDS)
            if slave.connection is None:
                self.member.poll_soon()

    async def _withdraw(self, seconds: float) -> None:
        """Send no heartbeats for some seconds, then return."""
        await self._group.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        self.member.restart()
        await self._group.open()

    def _figures(self) -> Metrics:
        from mq.daemons.metrics import counter, gauge  # imported only when metrics are read

        doc = "Seconds since the leader of the controllers last answered this broker."
        yield gauge("mq_controller_silence_seconds", doc, self.member.silence())
        doc = "Roles that controllers have assigned to this broker since its start."
        yield counter("mq_role_changes_total", doc, self.member.role_changes)

    def _heartbeat(self) -> BrokerHeartbeatRequestHeader:
        broker = self._settings.broker
        now = self._position if self.broker is None else position_of(self.broker)
        return BrokerHeartbeatRequestHeader(
            cluster_name=broker.broker_cluster_name,
            broker_addr=self.member.address,
            broker_name=broker.broker_name,
            broker_id=self.member.broker_id,
            epoch=now.epoch,
            max_offset=now.max_offset,
            confirm_offset=now.confirm_offset,
            heartbeat_timeout_mills=broker.controller_heart_beat_timeout_mills,
            election_priority=broker.broker_election_priority,
        )

    # as every daemon ----------------------------------------------------------------------------

    def ready_text(self) -> str:
        """The line that says where it serves, or what it waits for."""
        if self.broker is not None:
            return self.broker.ready_text()
        name = self._settings.broker.broker_name
        waits = self.member.problem or "its role changes"
        return f"The broker[{name}, {self.member.address}] serves nothing yet: {waits}"

    def status_text(self) -> str:
        """The role, and current problems."""
        if self.broker is None or self.member.role is None:
            return self.ready_text()
        problem = f"; {self.member.problem}" if self.member.problem else ""
        return f"{self.broker.status_text()}; {describe(self.member.role)}{problem}"

    def reload(self) -> None:
        """As `Broker.reload`."""
        self._group.reload_key()
        if self.broker is not None:
            self.broker.reload()

    def state(self) -> Iterable[str]:
        """The current state as lines of text."""
        role = self.member.role
        yield f"role: {'none yet' if role is None else describe(role)}"
        yield f"leader of the controllers: {self._group.leader or 'not known'}"
        for address in self._group.silent():
            yield f"controller {address}: accepts no heartbeats"
        if self.member.problem:
            yield f"membership: {self.member.problem}"
        if self.broker is not None:
            yield from self.broker.state()
