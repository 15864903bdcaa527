"""`mq broker` under controllers (enableControllerMode): a broker for each role, one after another.

Nothing listens until the controllers have said what this broker is. When they give it another role,
the broker is stopped and started in that one: both ways are short, and the ones that every crash
takes. The membership, its connections to the controllers and the heartbeats go on meanwhile.

A broker that cannot start in a role it was given shows no sign of life until it tries again: the
controllers are to elect another. The first start is different: what is wrong there is the
operator's to mend, and ends the daemon.

So does one whose machine has died, if it comes back so soon that it still is master: with
ASYNC_FLUSH it may lack what all in sync have acknowledged, and they would cut that off. One of them
is elected then, or itself again, in another epoch, where none of them lives.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack

from mq.daemons.broker.app import Broker
from mq.daemons.broker.components.component import Metrics
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.membership.controllers import ControllerGroup
from mq.daemons.broker.membership.log_position import (
    NOTHING,
    may_have_lost_its_end,
    standing_of,
    standing_on_disk,
)
from mq.daemons.broker.membership.master_ha import MasterHa
from mq.daemons.broker.membership.member import MasterControllers, Member, describe
from mq.daemons.broker.replication.controlled import ControlledRole
from mq.daemons.broker.store_config import BrokerRole
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.supervision import Tasks
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# The daemon is ready, though nothing is served yet, when there has been no role for so long:
# controllers may be away for any time, and who waits for a daemon takes that for a failure.
READY_SECONDS = 10.0
# How often the controllers are asked while nothing comes from the master.
LOOK_SECONDS = 0.5
# Between two attempts to take a role, longer from one to the next.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
# Behind that a controller of Java, too, takes a broker for dead whose first connection has not
# ended for it: so much longer than the heartbeats count.
_MISSED_SECONDS = 1.0


class ControlledBroker(Lifecycle):
    """A broker whose role controllers decide: `async with ControlledBroker(settings)`.

    ``broker`` is the one that runs now, None while there is no role or it changes. Entering waits,
    but not long, for the first role; raises what `Broker` does, and CannotStart for a store that is
    of another broker.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.broker: Broker | None = None
        self.tasks = Tasks()
        self._settings = settings
        self._group = ControllerGroup(settings)
        self.member = Member(settings, self._group, self._heartbeat, self.tasks)
        self._standing = NOTHING  # of the broker that ran last
        self._stands_back: list[float] = []  # for how long each time, while it is master as before
        self._stood_back_in = -1  # the epoch then
        self._stopping = asyncio.Event()
        self._served = asyncio.Event()  # a role has been taken
        self._is_entered = False
        self._running: asyncio.Task[None]

    async def _start(self, parts: AsyncExitStack) -> None:
        await self.member.check_identity()
        self._standing = await asyncio.to_thread(standing_on_disk, self._settings)
        if await asyncio.to_thread(may_have_lost_its_end, self._settings):
            silence = self._settings.broker.controller_heart_beat_timeout_mills / 1000
            self._stands_back = [FIRST_PAUSE, silence + _MISSED_SECONDS]
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
        """End entering soon, though there is no role yet."""
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
        """Stop the broker, before the controllers hear that it has gone."""
        self._stopping.set()
        await asyncio.wait((self._running,))
        if not self._running.cancelled() and (error := self._running.exception()) is not None:
            log.debug("the broker has ended", exc_info=error)  # told when it was entered

    # one role after another ---------------------------------------------------------------------

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while (role := await self._next_role()) is not None:
            if self._is_to_stand_back(role):
                await self._withdraw(self._stands_back.pop(0))
                continue
            self._stands_back.clear()
            try:
                await self._serve(role)
                pause = FIRST_PAUSE
            except Exception as error:
                if not self._is_entered:
                    raise
                log.critical("not %s: %s", describe(role), error, exc_info=error)
                await self._withdraw(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _is_to_stand_back(self, role: ControlledRole) -> bool:
        """Whether another member is to be elected, which may have what is missing here."""
        if not self._stands_back or not role.is_master:
            return False
        if self._stood_back_in < 0:
            if not role.members - {role.broker_id}:
                return False
            self._stood_back_in = role.master_epoch
            log.warning(
                "the machine of %s has died: others in sync may have what is lost here, and one of "
                "them is to be elected instead of the master of epoch %d",
                *(self.member.address, role.master_epoch),
            )
        return role.master_epoch == self._stood_back_in

    async def _next_role(self) -> ControlledRole | None:
        """The role to take now; None where the daemon stops."""
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
        """Be what a role says until there is another one, or the daemon stops."""
        master = MasterHa(role, self._settings)
        told = role
        if not role.is_master and role.master_address:
            told = dataclasses.replace(role, master_ha_address=await master.find_once())
        settings = self._settings = self._settings.in_role(
            BrokerRole.SYNC_MASTER if role.is_master else BrokerRole.SLAVE,
            MASTER_ID if role.is_master else role.broker_id,
        )
        broker = Broker(settings, told, MasterControllers(self.member, role))
        broker.tasks.failures = self.tasks.failures
        broker.master_addresses.flush_offset = master.flush_offset
        broker.on_role_notice = self.member.look
        broker.member_metrics = self._figures
        async with broker:
            self.broker = broker
            log.info("%s is %s", broker.address, describe(role))
            if self._served.is_set():
                log.info("%s", broker.ready_text())
            self._served.set()
            if broker.replication.slave is not None:
                broker.tasks.spawn(lambda: self._look_while_alone(broker), "news of the master")
            if told.master_address and not told.master_ha_address and not role.is_master:
                broker.tasks.spawn(
                    lambda: master.find(broker.master_addresses), "address of the master's log"
                )
            try:
                while self.member.role is role and not self._stopping.is_set():
                    await self._changed_or_stopping()
            finally:
                self._standing = standing_of(broker)
                self.broker = None
                # A name server that hangs would hold up the new role, and sees the connection end.
                broker.registration.says_farewell = self._stopping.is_set()

    async def _look_while_alone(self, broker: Broker) -> None:
        """Ask the controllers again and again while nothing comes from the master: the notice that
        there is another may be lost, or not be let in (aclEnable)."""
        slave = broker.replication.slave
        while slave is not None:
            await asyncio.sleep(LOOK_SECONDS)
            if slave.connection is None:
                self.member.look()

    async def _withdraw(self, seconds: float) -> None:
        """Be dead to the controllers for some seconds, then come back."""
        await self._group.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        self.member.start_anew()
        await self._group.open()

    def _figures(self) -> Metrics:
        from mq.daemons.metrics import counter, gauge  # only where somebody reads them

        doc = "Seconds since the leader of the controllers last answered this broker."
        yield gauge("mq_controller_silence_seconds", doc, self.member.silence())
        doc = "Roles that controllers have assigned to this broker since its start."
        yield counter("mq_role_changes_total", doc, self.member.role_changes)

    def _heartbeat(self) -> BrokerHeartbeatRequestHeader:
        broker = self._settings.broker
        now = self._standing if self.broker is None else standing_of(self.broker)
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
        """The line that says that it serves, and where; or what it waits for."""
        if self.broker is not None:
            return self.broker.ready_text()
        name = self._settings.broker.broker_name
        waits = self.member.problem or "its role changes"
        return f"The broker[{name}, {self.member.address}] serves nothing yet: {waits}"

    def status_text(self) -> str:
        """Its role, and what is wrong."""
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
        """What it has and does now."""
        role = self.member.role
        yield f"role: {'none yet' if role is None else describe(role)}"
        yield f"leader of the controllers: {self._group.leader or 'not known'}"
        for address in self._group.silent():
            yield f"controller {address}: takes no heartbeats"
        if self.member.problem:
            yield f"membership: {self.member.problem}"
        if self.broker is not None:
            yield from self.broker.state()
