"""A broker as a member of its replica set: it gets an id, sends heartbeats, and learns its role.

    1  find the leader of the controllers                     (1005)
    2  ask for an id, once for the life of the store          (1012)
    3  apply for it                                           (1013)
    4  register the address                                   (1003)
    5  send heartbeats to every controller from now on        (904)
    6  if there is no master, ask to be elected               (1002)
    7  poll for the master                                    (1004)

An error of a step is logged once, and the step is retried. A notice of the controllers (1008) only
makes the broker poll at once: its sender can trigger a poll, and nothing else.

A master that no leading controller has confirmed for as long as controllers wait for heartbeats may
have a successor elsewhere. Unless all members of the sync state set have to acknowledge messages
(allAckInSyncStateSet), or there is no other member, it takes a role without a master until it hears
from the controllers again (stopWithoutController). See docs/decisions/0056.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable

from mq.client.errors import MQError
from mq.client.machine import clock, random_ids
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.failover.membership.controllers import ControllerGroup, Heartbeat, NoLeader
from mq.daemons.broker.failover.membership.identity import IdentityFiles
from mq.daemons.broker.failover.membership.replica_set import ReplicaSet
from mq.daemons.broker.failover.membership.replica_set_queries import ReplicaSetQueries
from mq.daemons.broker.replication.controlled import ControlledRole, ControllerRefused, OnMembers
from mq.daemons.broker.replication.sync_state import SETTLED_SECONDS
from mq.daemons.service import CannotStart
from mq.daemons.supervision import Tasks
from mq.protocol.codes import ResponseCode
from mq.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

# Seconds between two attempts at a step. Java's brokers wait for five seconds.
RETRY_SECONDS = 1.0
# Seconds. If two brokers apply for the same id at once, one is refused, and must not collide with
# the other again.
LONGEST_RANDOM_PAUSE = 0.3
# Seconds between two polls at least, however many notices arrive.
MIN_PAUSE = 0.05
# Seconds between two checks of a master whether it has lost the controllers.
WATCH_SECONDS = 0.25

# The controllers have another master, or another epoch of this one.
_DEPOSED = frozenset(
    (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ResponseCode.CONTROLLER_INVALID_MASTER)
)
_FORGOTTEN = frozenset(
    (
        ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
    )
)


class Member:
    """Finds the role of a broker: `run`, until cancelled.

    ``role`` is the role that the broker should have now, None while it is unknown; ``changed`` is
    set when it changes. ``broker_id`` is the id assigned by the controllers, 0 before that.
    ``problem`` says what is wrong, "" if nothing is.
    """

    def __init__(
        self, settings: BrokerSettings, group: ControllerGroup, heartbeat: Heartbeat, tasks: Tasks
    ) -> None:
        self.role: ControlledRole | None = None
        self.changed = asyncio.Event()
        self.broker_id = 0
        self.problem = "no controller has answered yet"
        self.group = group
        self._settings = settings
        self._cluster = settings.broker.broker_cluster_name
        self._name = settings.broker.broker_name
        self.address = f"{settings.broker.broker_ip1}:{settings.server.listen_port}"
        self._files = IdentityFiles(settings.store.broker_identity_path, self._cluster, self._name)
        self._questions = ReplicaSetQueries(group, self._cluster, self._name, self.address)
        self._heartbeat = heartbeat
        self._tasks = tasks
        self._registered = False
        self._poll_now = asyncio.Event()  # set to poll now
        self._epoch = -1  # the highest known epoch of a master
        self._members: tuple[frozenset[int], int] = (frozenset(), -1)
        # A leader's report that the set is unchanged counts from this time on.
        self._settled_at = 0.0
        self.role_changes = 0
        self._answered: float | None = None  # the time of a leader's last reply
        # the start of the last question to which a leader replied that this broker is master
        self._confirmed = 0.0
        self._on_members: OnMembers = lambda members, epoch: None

    # called by the rest of the broker ---------------------------------------------------------

    def poll_soon(self) -> None:
        """Poll the controllers soon, because the role may have changed."""
        self._poll_now.set()

    def silence(self) -> float:
        """Seconds since the last reply of a leader; -1 if there was none."""
        return -1.0 if self._answered is None else clock.monotonic() - self._answered

    def restart(self) -> None:
        """Forget the role and register again, because the broker could not take the role."""
        self.role = None
        self._registered = False
        self.poll_soon()

    def on_members(self, callback: OnMembers) -> None:
        """Set the callback for the in-sync members and their epoch, when a controller reports them.
        It replaces the previous callback.
        """
        self._on_members = callback

    async def alter(
        self, role: ControlledRole, members: frozenset[int], epoch: int
    ) -> tuple[frozenset[int], int]:
        """Request another sync state set as the master of a role, as `Controllers.alter` says."""
        try:
            found = await self._questions.alter(role, members, epoch)
        except ControllerRefused as error:
            if error.code in _DEPOSED:
                self.poll_soon()
            if error.code == ResponseCode.SYSTEM_ERROR:  # it may be done already, or be done later
                self._note_possible(role, members)
            raise
        except (TimeoutError, ConnectionError):
            self._note_possible(role, members)
            raise
        if self.role is role and found[1] > self._members[1]:
            self._members = found
        return found

    def _note_possible(self, role: ControlledRole, members: frozenset[int]) -> None:
        """Count requested members as possibly in sync, and electable, from now on."""
        if self.role is role:
            self._members = self._members[0] | members, self._members[1]
            self._settled_at = clock.monotonic() + SETTLED_SECONDS

    # running ------------------------------------------------------------------------------------

    async def check_identity(self) -> None:
        """Check that this store belongs to this broker. Raises CannotStart, and OSError."""
        await asyncio.to_thread(self._files.read)
        await asyncio.to_thread(self._files.read_application)

    async def run(self) -> None:
        """Take the steps, then poll for the master."""
        while True:
            self._poll_now.clear()
            try:
                problem = await self._step()
            except ControllerRefused as error:
                problem = self._refusal(error)
            except (MQError, ProtocolError, CannotStart, OSError) as error:
                problem = str(error)
            if problem and problem != self.problem:
                log.warning("membership of %s: %s", self._name, problem)
            self.problem = problem
            await asyncio.sleep(MIN_PAUSE)
            pause = self._pause()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._poll_now.wait()

    def _pause(self) -> float:
        """Seconds until the next poll."""
        seconds = self._settings.broker.sync_broker_metadata_period / 1000
        if self.problem:
            return min(seconds, RETRY_SECONDS)
        if self.role is not None and self.role.is_master:  # two replies may be lost
            return min(seconds, self._lease / 3)
        return seconds

    async def watch_leader(self) -> None:
        """Ask for the leader of the controllers repeatedly, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.broker.sync_controller_metadata_period / 1000)
            with contextlib.suppress(NoLeader):
                await self.group.find_leader()
            if self._registered:
                self.group.keep_showing(self._heartbeat, self._tasks)

    async def watch_lease(self) -> None:
        """Take the role from a master that the controllers may have replaced, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            role = self.role
            if role is not None and role.is_master and not self.may_answer():
                log.error(
                    "no controller has confirmed the master of %s for %g s; another one may have "
                    "been elected; refusing messages until a controller confirms",
                    *(self._name, self._lease),
                )
                self._take_role(_without_master(role, role.master_epoch))

    def may_answer(self) -> bool:
        """As `Controllers.may_answer`, for this broker as the master."""
        return not self._may_be_lost() or clock.monotonic() - self._confirmed <= self._lease

    @property
    def _lease(self) -> float:
        """The seconds that a leader's confirmation is valid, from the start of the question. The
        leader's last heartbeat of this broker may then be a heartbeat interval old.
        """
        broker = self._settings.broker
        timeout = broker.controller_heart_beat_timeout_mills
        return max(timeout - broker.broker_heartbeat_interval, timeout / 2) / 1000

    def _may_be_lost(self) -> bool:
        """Whether an acknowledged message may be missing at a master that is elected elsewhere."""
        settings = self._settings
        if not settings.broker.stop_without_controller or settings.store.all_ack_in_sync_state_set:
            return False
        return len(self._members[0]) > 1

    def _refusal(self, error: ControllerRefused) -> str:
        """Describe a refusal for the operator."""
        if error.code not in _FORGOTTEN:
            return f"a controller refuses: {error}"
        self._registered = False
        return (
            f"the controllers do not know broker id {self.broker_id} of {self._name} ({error}): if "
            f"it was removed there, move {self._files.path} away to join as a new member"
        )

    # the steps ----------------------------------------------------------------------------------

    async def _step(self) -> str:
        """Take the next steps, or poll; returns what is wrong then, "" for nothing.

        Raises as ControllerGroup.ask; ProtocolError; for its files CannotStart and OSError.
        """
        asked = clock.monotonic()
        if not self._registered:
            await self._identify()
            found = await self._questions.register(self.broker_id)
            await self.group.show(self._heartbeat)
            self.group.keep_showing(self._heartbeat, self._tasks)
            self._registered = True
        else:
            found = await self._questions.look_up()
        if not found.has_master:
            found = await self._questions.elect(self.broker_id) or found
        self._answered = clock.monotonic()
        return self._take(found, asked)

    async def _identify(self) -> None:
        """Steps 2 and 3."""
        files = self._files
        known = await asyncio.to_thread(files.read)
        if known is None:
            known = await self._apply()
            log.info("the controllers know this broker as %d of %s", known, self._name)
        self.broker_id = known

    async def _apply(self) -> int:
        files = self._files
        application = await asyncio.to_thread(files.read_application)
        if application is None:
            application = await self._questions.new_application()
            await asyncio.to_thread(files.apply, application)
        try:
            await self._questions.apply(application)
        except ControllerRefused as error:
            if error.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:  # another broker has it
                await asyncio.to_thread(files.drop_application)
                await asyncio.sleep(random_ids.uniform(0, LONGEST_RANDOM_PAUSE))
                self.poll_soon()
            raise
        await asyncio.to_thread(files.accept, application)
        return application.broker_id

    # replies ------------------------------------------------------------------------------------

    def _take(self, found: ReplicaSet, asked: float) -> str:
        """Apply a leader's reply to a question that was sent at ``asked``; returns what is wrong,
        "" for nothing. Ignores a leader with an old epoch.
        """
        if 0 <= found.master_epoch < self._epoch:
            return f"a controller reports epoch {found.master_epoch}, but {self._epoch} was before"
        self._epoch = max(self._epoch, found.master_epoch)
        if not found.has_master:
            return self._without_master(found)
        is_mine = found.master_id == self.broker_id
        if is_mine and found.master_address != self.address:
            return self._doubled(found)
        if is_mine:
            self._confirmed = asked
        wanted = ControlledRole(
            broker_id=self.broker_id,
            is_master=is_mine,
            master_id=found.master_id,
            master_epoch=found.master_epoch,
            master_address=found.master_address,
            master_ha_address="",
            members=found.members,
            members_epoch=found.members_epoch,
        )
        is_another = self.role is None or _identity(wanted) != _identity(self.role)
        if is_another or found.members_epoch >= self._members[1]:
            # A report of an unchanged set counts, too, unless a requested change may still be made.
            if found.members_epoch != self._members[1] or asked >= self._settled_at:
                self._members = found.members, found.members_epoch
            if is_another:
                self._take_role(wanted)
            elif is_mine:
                self._on_members(found.members, found.members_epoch)
        return ""

    def _doubled(self, found: ReplicaSet) -> str:
        """Handle another master that has registered with this broker's id: only one may run."""
        if self.role is not None and self.role.is_master:
            self._take_role(_without_master(self.role, found.master_epoch))
        return (
            f"{found.master_address} has id {self.broker_id} of {self._name}, too: of a store and "
            f"its copy only one may run; to have this one join as a new member, stop it and move "
            f"{self._files.path} away"
        )

    def _without_master(self, found: ReplicaSet) -> str:
        """Handle a set without a master, none of whose members can be elected now."""
        role = self.role
        if role is not None and role.is_master and found.master_epoch > role.master_epoch:
            self._take_role(_without_master(role, found.master_epoch))
        return "there is no master: none of the members in sync is alive"

    def _take_role(self, role: ControlledRole) -> None:
        self.role = role
        self.role_changes += 1
        self.changed.set()


class MasterControllers:
    """`Controllers` for the broker of one role."""

    def __init__(self, member: Member, role: ControlledRole) -> None:
        self._member = member
        self._role = role

    async def alter(self, members: frozenset[int], epoch: int) -> tuple[frozenset[int], int]:
        return await self._member.alter(self._role, members, epoch)

    def may_answer(self) -> bool:
        # In another role the member knows another set, which says nothing about this one.
        return self._member.role is self._role and self._member.may_answer()

    def on_members(self, callback: Callable[[frozenset[int], int], None]) -> None:
        self._member.on_members(callback)


def describe(role: ControlledRole) -> str:
    """Describe a role for the operator."""
    if role.is_master:
        return f"master in epoch {role.master_epoch}"
    if not role.master_address:
        return f"a slave without a master, after epoch {role.master_epoch}"
    return f"slave of {role.master_address} in epoch {role.master_epoch}"


def _identity(role: ControlledRole) -> tuple[object, ...]:
    """The fields whose change makes another role; the in-sync members do not."""
    return (
        *(role.broker_id, role.is_master),
        *(role.master_id, role.master_epoch, role.master_address),
    )


def _without_master(role: ControlledRole, epoch: int) -> ControlledRole:
    """The role of a broker that is no longer master, while there is no other master."""
    return dataclasses.replace(
        role, is_master=False, master_id=0, master_epoch=epoch, master_address=""
    )
