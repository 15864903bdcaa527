"""Sync state set: the members of a replica set that have everything that is confirmed; each may
become master.

The controllers keep it; the master requests that members join or leave, and acts on a change only
when the controllers have agreed. Until then, and while it does not know whether they have, a
message counts as replicated when both the old and the requested set have it: a master that is cut
off from its controllers confirms nothing that the next master may lack. (Java 5.5.0 drops a slave
that has left before they agree.)

    join     the slave was sent everything, has acknowledged it, and everything that is confirmed.
             With allAckInSyncStateSet senders wait for its acknowledgements as soon as it is near,
             and it joins when it has reached the confirm offset of that time: otherwise a slave
             that lags one message, as all do under load, would never join
    leave    the slave has lacked a part of the log for haMaxTimeSlaveNotCatchup, has disconnected,
             or has come back with less than is confirmed; or it has not connected FIRST_LOOK
             seconds after this master started

The guarantees of the settings:

    allAckInSyncStateSet   a message is answered, and readable, when the set has it
    inSyncReplicas         without that: it is readable at once, and answered when this many have
                           it; neither while controllers may have replaced this master, also if it
                           was suspended and has not noticed yet how late it is
    minInSyncReplicas      with fewer members in the set no message is accepted
"""

import asyncio
import contextlib
import logging
import math

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.acks import SlaveAcks
from mq.daemons.broker.replication.controlled import (
    ControlledRole,
    ControllerRefused,
    Controllers,
)
from mq.daemons.broker.replication.controlled_connection import ControlledConnection
from mq.daemons.broker.replication.epochs import Epochs
from mq.daemons.broker.replication.in_sync_gate import CAUSE, not_enough
from mq.daemons.broker.replication.slave_connection import SlaveConnection
from mq.daemons.broker.store import Appender, CommitLog, ConfirmOffset
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

FIRST_LOOK = 3.0  # seconds (AutoSwitchHAService, ReplicasManager.startCheckSyncStateSetService)
RETRY_SECONDS = 1.0  # after a change that the controllers have not made
# Seconds after a change of unknown outcome until a controller's report that the set is unchanged
# counts. The controllers' own log takes five seconds at most.
SETTLED_SECONDS = 10.0
# the confirm offset is sent separately when no bytes have carried it for this time
CONFIRM_SECONDS = 0.02
JOIN_SECONDS = 5.0  # a slave that does not catch up within this time is not waited for any longer
# Seconds until senders wait again for a slave that the controllers do not know, or not yet.
BARRED_SECONDS = {
    ResponseCode.CONTROLLER_INVALID_REPLICAS: 30.0,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE: 1.0,
}


class SyncState:
    """The sync state set, at its master. ``members`` is the set that the controllers have agreed
    on.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        role: ControlledRole,
        commit_log: CommitLog,
        appender: Appender,
        bound: ConfirmOffset,
        epochs: Epochs,
        controllers: Controllers,
    ) -> None:
        self.id = role.broker_id
        self.members = role.members | {self.id}
        self.members_epoch = role.members_epoch
        self.epochs = epochs
        self.slaves: dict[int, ControlledConnection] = {}  # by their ids
        self.acks: SlaveAcks | None = None
        self.refused_changes = 0
        self._settings = settings
        self._log = commit_log
        self._appender = appender
        self._bound = bound
        self._controllers = controllers
        self._all = settings.store.all_ack_in_sync_state_set
        self._asked: frozenset[int] | None = None  # requested; the set may be this by now
        self._asked_until = 0.0  # the time when the last request for it ended
        # slaves that are waited for, with the start of the wait
        self._joining: dict[int, float] = {}
        self._barred: dict[int, float] = {}  # slaves that are not waited for, with the end of that
        self._gone: set[int] = set()  # members that were connected, and are not
        self._began = clock.monotonic()
        self._changed = asyncio.Event()
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._is_leaving = False
        controllers.on_members(self.learned)
        self.check_size()

    # acknowledgements---------------------------------------------------------------------------

    @property
    def confirmed(self) -> int:
        return self._bound.offset

    @property
    def waited_for(self) -> frozenset[int]:
        """The members, and slaves that may be members by now or are about to join."""
        return self.members | (self._asked or frozenset()) | self._joining.keys()

    def has(self, slave: SlaveConnection) -> bool:
        """Whether a connection is that of a member."""
        id_ = slave.id if isinstance(slave, ControlledConnection) else -1
        return id_ in self.members and self.slaves.get(id_) is slave

    def covered(self) -> int:
        """The physical offset up to which no sender has to wait any more."""
        if self._all:
            return self._had_by_all()
        if not self._controllers.may_answer():
            return -1
        others = self._settings.store.in_sync_replicas - 1
        if others <= 0:
            return self._log.written
        acked = [slave.acked for slave in self.slaves.values() if not slave.is_learner]
        return sorted(acked)[-others] if len(acked) >= others else -1

    def _had_here(self) -> int:
        """The offset up to which this broker has the log, with SYNC_FLUSH on its disk: records that
        slaves had earlier, and showed, would be lost here after a power failure.
        """
        return self._log.written if self._appender.await_flush is None else self._log.flushed

    def _had_by_all(self) -> int:
        """A member without a connection keeps the offset where it is."""
        least = self._had_here()
        for member in self.waited_for:
            if member != self.id:
                slave = self.slaves.get(member)
                if slave is None or slave.next < 0:
                    return min(least, self._bound.offset)
                least = min(least, slave.acked)
        return least

    def written(self) -> None:
        """Note that the log has grown, before the batch is published."""
        if len(self.waited_for) == 1 if self._all else self._controllers.may_answer():
            self._bound.raise_to(self._had_here())

    def advance(self) -> None:
        """Make readable, and answer, everything that is covered now."""
        before = self._bound.offset
        if self._all:
            self._bound.raise_to(self._had_by_all())
        else:
            self.written()
        if self.acks is not None:
            self.acks.acknowledged(self.covered())
        if self._bound.offset > before and self._confirm_timer is None and self.slaves:
            loop = asyncio.get_running_loop()
            self._confirm_timer = loop.call_later(CONFIRM_SECONDS, self._send_confirmed)

    def _send_confirmed(self) -> None:
        self._confirm_timer = None
        for slave in list(self.slaves.values()):
            slave.send_confirmed()

    def check_size(self) -> None:
        """Accept or refuse messages: with too few members the configured number of copies is not
        guaranteed.
        """
        least = self._settings.store.min_in_sync_replicas
        if len(self.members) >= least:
            self._appender.accept(CAUSE)
        else:
            self._appender.refuse(CAUSE, not_enough())

    # called by connections ----------------------------------------------------------------------

    def joined(self, slave: ControlledConnection) -> str:
        """A slave has identified itself. Its previous connection, which may not have ended yet, no
        longer counts.
        """
        if slave.id <= 0 or slave.id == self.id:
            return "cannot be a slave here"
        before = self.slaves.get(slave.id)
        self.slaves[slave.id] = slave
        self._gone.discard(slave.id)
        if before is not None:
            before.abort()
        return ""

    def acknowledged(self, slave: ControlledConnection) -> None:
        """Handle an acknowledgement of a slave."""
        if self.slaves.get(slave.id) is not slave:
            return
        if slave.id not in self.members:
            if slave.id not in self._joining and self._may_join(slave):
                self._joining[slave.id] = clock.monotonic()
            if self._is_ready(slave):
                self._changed.set()
        elif self._has_lost(slave):
            self._changed.set()
        self.advance()

    def left(self, slave: ControlledConnection) -> None:
        """Handle the end of a connection."""
        if self.slaves.get(slave.id) is not slave:
            return
        del self.slaves[slave.id]
        # only for members, not for each id that a peer sent
        if slave.id in self.members or slave.id in (self._asked or ()):
            self._gone.add(slave.id)
        if self._joining.pop(slave.id, None) is not None:
            # It is not waited for any more. Called later, because a batch may be being written.
            asyncio.get_running_loop().call_soon(self.advance)
        if slave.id in self.members:
            self._changed.set()

    def _has_lost(self, slave: ControlledConnection) -> bool:
        """Whether a member has come back with less than it had, because its machine crashed. It
        must not be elected, nor counted for records that are confirmed already.
        """
        return self._all and 0 <= slave.acked < self._bound.offset

    def _may_join(self, slave: ControlledConnection) -> bool:
        last = self.epochs.last
        return (
            not slave.is_learner
            and clock.monotonic() >= self._barred.get(slave.id, 0.0)
            and slave.acked >= slave.end_when_sent
            and (last is None or slave.acked >= last.start)
        )

    def _is_ready(self, slave: ControlledConnection) -> bool:
        """Whether a near slave may be requested as a member. Without allAck nothing depends on
        it."""
        return slave.id in self._joining and (not self._all or slave.acked >= self._bound.offset)

    # the set ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the set up to date, until cancelled."""
        period = self._settings.broker.check_sync_state_set_period / 1000
        pause = min(FIRST_LOOK, period)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            self._changed.clear()
            if self._is_leaving:
                return
            pause = period
            self._forget_slow()
            target = self.target()
            if target != self.members and not await self._ask(target):
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    def target(self) -> frozenset[int]:
        """The members that the set should have now. Members join one by one, so that a refusal
        concerns a known slave.
        """
        stay = {each for each in self.members if not self._is_lost(each)}
        for each in self._joining:  # ordered by the start of the wait
            slave = self.slaves.get(each)
            if slave is not None and each not in self.members and self._is_ready(slave):
                return frozenset(stay | {each})
        return frozenset(stay)

    def _is_lost(self, member: int) -> bool:
        if member == self.id:
            return False
        slave = self.slaves.get(member)
        if slave is None:
            return member in self._gone or clock.monotonic() - self._began >= FIRST_LOOK
        if self._has_lost(slave):
            return True
        longest = self._settings.store.ha_max_time_slave_not_catchup / 1000
        return slave.seconds_without_all() > longest

    def _forget_slow(self) -> None:
        now = clock.monotonic()
        slow = [each for each, since in self._joining.items() if now - since > JOIN_SECONDS]
        for each in slow:
            del self._joining[each]
        if slow:
            self.advance()

    async def _ask(self, wanted: frozenset[int]) -> bool:
        """Request another set; returns whether the set has changed."""
        is_first = self._asked is None
        self._asked = (self._asked or frozenset()) | wanted
        self._asked_until = math.inf
        before = self.members_epoch
        try:
            members, epoch = await self._controllers.alter(wanted, before)
        except ControllerRefused as error:
            self._refused(wanted, str(error))
            self._bar(wanted - self.members, error.code)
            # SYSTEM_ERROR: the change may be made later
            if is_first and error.code != ResponseCode.SYSTEM_ERROR:
                self._asked = None
                self.advance()
        except (TimeoutError, ConnectionError) as error:
            self._refused(wanted, str(error) or type(error).__name__)
        else:
            self.learned(members, epoch)
        self._asked_until = clock.monotonic()
        return self.members_epoch > before

    def _bar(self, refused: frozenset[int], code: int) -> None:
        """Bar refused slaves for some time, depending on the controllers' code."""
        now = clock.monotonic()
        self._barred = {each: until for each, until in self._barred.items() if until > now}
        if code in BARRED_SECONDS:
            for each in refused:
                self._joining.pop(each, None)
                self._barred[each] = now + BARRED_SECONDS[ResponseCode(code)]

    def _refused(self, wanted: frozenset[int], why: str) -> None:
        self.refused_changes += 1
        log.warning(
            "the sync state set is still %s, and not yet %s: %s",
            *(sorted(self.members), sorted(wanted), why),
            extra={"failure": "changes of the sync state set"},
        )

    def learned(self, members: frozenset[int], epoch: int) -> None:
        """Apply a controller's report of the set."""
        if epoch > self.members_epoch:
            log.info("the sync state set is %s, epoch %d", sorted(members), epoch)
            self.members, self.members_epoch = members | {self.id}, epoch
            self._asked = None
        elif (
            self._asked is not None
            and epoch == self.members_epoch
            and clock.monotonic() - self._asked_until > SETTLED_SECONDS
        ):
            self._asked = None  # the change was not made, and will not be
        for member in members:
            self._joining.pop(member, None)
        self.check_size()
        self.advance()

    def close(self) -> None:
        """Stop, because the broker is being stopped. The set stays as it is, because the next
        master is a member. Idempotent.
        """
        self._is_leaving = True
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
            self._confirm_timer = None
