"""Sync state set: the brokers of a set that have all that is confirmed; any may become master.

The controllers keep it; the master of the set says who is to join and who to leave, and acts on it
only when they have agreed. Until then, and as long as it does not know whether they have, a message
counts as had by all when both the set that was and the one that was asked for have it: a master
that is cut off from its controllers confirms nothing that the next one need not have. (Java 5.5.0
drops a slave that has left before they agree.)

    join     it has been sent all, has acknowledged it, and what is confirmed. With
             allAckInSyncStateSet its acknowledgements are waited for from when it is near, and it
             joins when it has come to where the confirm offset was then: else a slave that is one
             message behind, as under load all are, never would
    leave    it has not had all for haMaxTimeSlaveNotCatchup, or has closed its connection, or
             has come back with less than is confirmed; or it has not come FIRST_LOOK seconds after
             this master began

What the settings promise:

    allAckInSyncStateSet   a message is answered, and shown, when the set has it
    inSyncReplicas         without that: it is shown at once, and answered when so many have it;
                           neither while controllers may have given this master up, also where it
                           has stood still, and has not seen yet how late it is
    minInSyncReplicas      with fewer in the set no message is taken
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
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.confirm_offset import ConfirmOffset
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

FIRST_LOOK = 3.0  # seconds (AutoSwitchHAService, ReplicasManager.startCheckSyncStateSetService)
RETRY_SECONDS = 1.0  # behind a change that the controllers did not make
# A change of which nobody knows whether it was made: from when on a controller that says that the
# set is as it was is believed. Its own log takes five seconds at most.
SETTLED_SECONDS = 10.0
CONFIRM_SECONDS = 0.02  # a slave is told what is confirmed by itself, when so long no bytes told it
JOIN_SECONDS = 5.0  # a slave that is waited for, and does not come up, no longer is
# One that the controllers do not know, or have not heard of yet, is waited for again behind this.
BARRED_SECONDS = {
    ResponseCode.CONTROLLER_INVALID_REPLICAS: 30.0,
    ResponseCode.CONTROLLER_BROKER_NOT_ALIVE: 1.0,
}


class SyncState:
    """The set, on its master. ``members`` is what the controllers have agreed on."""

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
        self._asked: frozenset[int] | None = None  # perhaps the set by now
        self._asked_until = 0.0  # when the last question about it ended
        self._joining: dict[int, float] = {}  # waited for, since when
        self._barred: dict[int, float] = {}  # not waited for, until when
        self._gone: set[int] = set()  # have been connected, and are not
        self._began = clock.monotonic()
        self._changed = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None
        self._is_leaving = False
        controllers.on_members(self.learned)
        self.check_size()

    # what counts --------------------------------------------------------------------------------

    @property
    def confirmed(self) -> int:
        return self._bound.offset

    @property
    def waited_for(self) -> frozenset[int]:
        """The members, and who may be one by now or is about to be."""
        return self.members | (self._asked or frozenset()) | self._joining.keys()

    def has(self, slave: SlaveConnection) -> bool:
        """Whether a connection is that of a member."""
        id_ = slave.id if isinstance(slave, ControlledConnection) else -1
        return id_ in self.members and self.slaves.get(id_) is slave

    def covered(self) -> int:
        """Up to which physical offset a sender need not wait any more."""
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
        """Up to where this broker has the log, with SYNC_FLUSH on its disk: what slaves had sooner,
        and showed, would be gone behind a power cut here."""
        return self._log.written if self._appender.await_flush is None else self._log.flushed

    def _had_by_all(self) -> int:
        """Who waits and has no connection leaves it where it is."""
        least = self._had_here()
        for member in self.waited_for:
            if member != self.id:
                slave = self.slaves.get(member)
                if slave is None or slave.next < 0:
                    return min(least, self._bound.offset)
                least = min(least, slave.acked)
        return least

    def written(self) -> None:
        """The log has grown. Before the batch is published."""
        if len(self.waited_for) == 1 if self._all else self._controllers.may_answer():
            self._bound.raise_to(self._had_here())

    def advance(self) -> None:
        """Show and answer what is covered now."""
        before = self._bound.offset
        if self._all:
            self._bound.raise_to(self._had_by_all())
        else:
            self.written()
        if self.acks is not None:
            self.acks.acknowledged(self.covered())
        if self._bound.offset > before and self._telling is None and self.slaves:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(CONFIRM_SECONDS, self._tell_confirmed)

    def _tell_confirmed(self) -> None:
        self._telling = None
        for slave in list(self.slaves.values()):
            slave.tell_confirmed()

    def check_size(self) -> None:
        """Take messages, or none: as many copies as the setting says are not certain then."""
        least = self._settings.store.min_in_sync_replicas
        if len(self.members) >= least:
            self._appender.accept(CAUSE)
        else:
            self._appender.refuse(CAUSE, not_enough())

    # what connections say -----------------------------------------------------------------------

    def joined(self, slave: ControlledConnection) -> str:
        """A slave has said who it is. Its last connection, which may not have ended yet, has no
        say any more."""
        if slave.id <= 0 or slave.id == self.id:
            return "cannot be a slave here"
        before = self.slaves.get(slave.id)
        self.slaves[slave.id] = slave
        self._gone.discard(slave.id)
        if before is not None:
            before.abort()
        return ""

    def acknowledged(self, slave: ControlledConnection) -> None:
        """A slave has said up to where it has the log."""
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
        """A connection has ended."""
        if self.slaves.get(slave.id) is not slave:
            return
        del self.slaves[slave.id]
        if slave.id in self.members or slave.id in (self._asked or ()):  # not each id ever said
            self._gone.add(slave.id)
        if self._joining.pop(slave.id, None) is not None:
            # It is not waited for any more. Not here: a batch may just be being written.
            asyncio.get_running_loop().call_soon(self.advance)
        if slave.id in self.members:
            self._changed.set()

    def _has_lost(self, slave: ControlledConnection) -> bool:
        """Whether a member has come back with less than it had: its machine has died. It may not
        be elected; nor may it be waited for with what is confirmed already."""
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
        """Whether one that is near may be asked for. Without allAck nothing is promised of it."""
        return slave.id in self._joining and (not self._all or slave.acked >= self._bound.offset)

    # the set ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the set as it should be, until cancelled."""
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
            wanted = self.wanted()
            if wanted != self.members and not await self._ask(wanted):
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    def wanted(self) -> frozenset[int]:
        """Who should be in the set now. They join one by one: what is refused is known of whom."""
        stay = {each for each in self.members if not self._is_lost(each)}
        for each in self._joining:  # by since when they are waited for
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
        """Ask for another set; whether there is one."""
        is_first = self._asked is None
        self._asked = (self._asked or frozenset()) | wanted
        self._asked_until = math.inf
        before = self.members_epoch
        try:
            members, epoch = await self._controllers.alter(wanted, before)
        except ControllerRefused as error:
            self._refused(wanted, str(error))
            self._bar(wanted - self.members, error.code)
            if is_first and error.code != ResponseCode.SYSTEM_ERROR:  # that may be done later
                self._asked = None
                self.advance()
        except (TimeoutError, ConnectionError) as error:
            self._refused(wanted, str(error) or type(error).__name__)
        else:
            self.learned(members, epoch)
        self._asked_until = clock.monotonic()
        return self.members_epoch > before

    def _bar(self, refused: frozenset[int], code: int) -> None:
        """What a controller says of one that was to join."""
        now = clock.monotonic()
        self._barred = {each: until for each, until in self._barred.items() if until > now}
        if code in BARRED_SECONDS:
            for each in refused:
                self._joining.pop(each, None)
                self._barred[each] = now + BARRED_SECONDS[ResponseCode(code)]

    def _refused(self, wanted: frozenset[int], why: str) -> None:
        self.refused_changes += 1
        log.warning(
            "the sync state set stays %s and is not %s yet: %s",
            *(sorted(self.members), sorted(wanted), why),
            extra={"failure": "changes of the sync state set"},
        )

    def learned(self, members: frozenset[int], epoch: int) -> None:
        """What a controller says of the set."""
        if epoch > self.members_epoch:
            log.info("the sync state set is %s, epoch %d", sorted(members), epoch)
            self.members, self.members_epoch = members | {self.id}, epoch
            self._asked = None
        elif (
            self._asked is not None
            and epoch == self.members_epoch
            and clock.monotonic() - self._asked_until > SETTLED_SECONDS
        ):
            self._asked = None  # it was not made, and will not be
        for member in members:
            self._joining.pop(member, None)
        self.check_size()
        self.advance()

    def close(self) -> None:
        """The broker is being stopped: the set stays as it is, for the next master is one of it.
        Idempotent."""
        self._is_leaving = True
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
