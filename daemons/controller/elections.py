"""Holds elections: when a master is dead, or at the request of a broker or administrator.

is_due   a master has ended or its heartbeats stopped: an election is due at once; all are due
         when this controller becomes the leader, because any master may be dead
scan     finds missed cases by periodic checks
notices  notify the live members of a replica set of the new master
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.daemons.controller.config import ControllerSettings
from mq.daemons.controller.liveness import Liveness
from mq.daemons.controller.registry import Registry
from mq.daemons.controller.replica_set import ReplicaSet, with_master, without_master
from mq.daemons.dispatch import Refused
from mq.protocol.bodies.controller import SyncStateSet
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.controller import NotifyBrokerRoleChangedRequestHeader

log = logging.getLogger(__name__)

_NOTICE_SECONDS = 3.0
# Seconds until an election is retried that etcd has not confirmed, or for which a heartbeat is
# awaited.
_RETRY_SECONDS = 0.3


def elect(
    kept: ReplicaSet, liveness: Liveness, *, designated: int | None = None, unclean: bool = False
) -> int | None:
    """Return the id of the next master, which is the present one while it may be alive; None if no
    broker is electable.

    Only brokers in sync are electable, or with ``unclean`` any broker if none of them is alive. The
    best has the last epoch, among these the longest log, among these the lowest priority; whole
    offsets are compared (Java cuts their difference to 32 bits).

    After a machine loses power, its connections do not end. The elected broker is alone in sync
    from then on, so the data of the other brokers in sync is discarded. Therefore a broker whose
    heartbeat is late is not elected, unless an administrator designates it. (Java elects it.)
    """
    found = _of(kept, kept.members, liveness, designated)
    if found is None and unclean and not is_awaited(kept, liveness):
        found = _of(kept, kept.replicas.keys(), liveness, designated)
    return found


def is_awaited(kept: ReplicaSet, liveness: Liveness) -> bool:
    """Whether no broker in sync is known to be alive but some may be: more will be known soon."""
    found = [liveness.get(kept.name, id_) for id_ in kept.members if id_ in kept.replicas]
    alive = [live for live in found if live is not None]
    return bool(alive) and not any(live.is_prompt for live in alive)


def _of(
    kept: ReplicaSet, candidates: Collection[int], liveness: Liveness, designated: int | None
) -> int | None:
    master = kept.master_id
    if master in candidates and designated in (None, master):
        assert master is not None
        if liveness.may_live(kept.name, master):
            return master
    alive = {id_: liveness.get(kept.name, id_) for id_ in candidates if id_ in kept.replicas}
    if designated is not None:
        return designated if alive.get(designated) is not None else None
    ranks = {id_: live.rank() for id_, live in alive.items() if live is not None and live.is_prompt}
    # Of equals the lowest id, so that every controller would elect the same one.
    return max(sorted(ranks), key=ranks.__getitem__, default=None)


@dataclass(frozen=True)
class Election:
    """The outcome of an election: the resulting replica set, and whether it has a new master."""

    kept: ReplicaSet
    is_new: bool


class Elections:
    """Holds elections. ``session`` sends notices to brokers."""

    def __init__(
        self,
        settings: ControllerSettings,
        registry: Registry,
        liveness: Liveness,
        session: Session,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._liveness = liveness
        self._session = session
        self._due: dict[str, None] = {}
        self._wake = asyncio.Event()
        self.held = 0  # that found a master
        self.failed = 0  # that found no master

    def is_due(self, name: str) -> None:
        """Schedule an election for the replica set of a dead broker; it takes place if that was the
        master.
        """
        self._due[name] = None
        self._wake.set()

    def all_are_due(self) -> None:
        """Schedule elections for all sets: any master may have died while there was no leader."""
        for kept in self._registry:
            if kept.master_id is not None:
                self._due[kept.name] = None
        self._wake.set()

    async def work(self) -> None:
        """Task: hold the elections that are due."""
        while True:
            self._wake.clear()
            if not self._due:
                await self._wake.wait()
            elif not await self._hold_due():
                await asyncio.sleep(_RETRY_SECONDS)

    async def _hold_due(self) -> bool:
        """Try once each election that is due; False if any must be retried.

        All waiting elections share the pause, because any client can register sets that wait. If
        etcd refuses one election, it would refuse the next one, and all sets are read again for
        each; so the pause comes at once then. An election stays due until its attempt has
        completed, whatever is raised.
        """
        all_done = True
        for name in list(self._due):
            # before the attempt: the elected broker may be dead when the result is written
            del self._due[name]
            done = False
            try:
                done = await self._elect_if_dead(name)
            except Refused as error:
                log.warning("cannot elect a master of %s: %s", name, error.remark)
                return False
            finally:
                if not done:
                    self._due[name] = None  # after the others
            if not done:
                all_done = False
                await asyncio.sleep(0)  # there may be thousands
        return all_done

    async def scan(self) -> None:
        """Task: check for silent brokers and dead masters periodically."""
        config = self._settings.controller
        since = 0.0
        while True:
            pause = config.scan_not_active_broker_interval / 1000
            await asyncio.sleep(pause)
            self._liveness.expire()
            since += pause
            if since < config.scan_inactive_master_interval / 1000:
                continue
            since = 0.0
            self.all_are_due()

    async def hold(
        self, name: str, *, broker_id: int | None = None, designated: bool = False
    ) -> Election | None:
        """Elect a master for a replica set; None if the set does not exist. ``broker_id`` is the
        broker that asks or, with `designated`, the next master.

        Raises Refused like `Registry.change`. A set whose master may be alive keeps it. If no
        broker is electable, the set keeps its state if a broker has asked, and otherwise has no
        master from now on.
        """
        unclean = self._settings.controller.enable_elect_unclean_master
        is_new = False

        def step(kept: ReplicaSet | None) -> ReplicaSet | None:
            nonlocal is_new
            is_new = False
            if kept is None:
                return None
            wanted = broker_id if designated else None
            found = elect(kept, self._liveness, designated=wanted, unclean=unclean)
            if kept.master_epoch == 0 and broker_id in kept.replicas:
                found = broker_id  # the first broker that asks; no broker has written anything yet
            if found is None:
                if broker_id is not None or kept.master_id is None:
                    return kept
                return without_master(kept)
            if found == kept.master_id:
                return kept
            is_new = True
            return with_master(kept, found)

        changed = await self._registry.change(name, step)
        if changed is None:
            return None
        if is_new:
            self.held += 1
            log.warning(
                "elected broker %s as the master of %s, epoch %d",
                changed.master_id,
                name,
                changed.master_epoch,
            )
            if self._settings.controller.notify_broker_role_changed:
                self._notify(changed)
        elif changed.master_id is None:
            self.failed += 1
            log.error(
                "no master of %s: none of the brokers in sync %s is alive",
                name,
                sorted(changed.members),
                extra={"failure": f"elections of {name}"},
            )
        return Election(changed, is_new)

    async def _elect_if_dead(self, name: str) -> bool:
        """Hold an election if the master is dead; False if that must be retried. Raises Refused if
        etcd has not confirmed it.
        """
        try:
            kept = self._registry.get(name)
        except Refused:
            # Another controller leads, and sees the same; or etcd is being asked, and the election
            # stays due.
            return not self._registry.is_in_doubt
        if kept is None or kept.master_id is None:
            return True
        if self._liveness.may_live(name, kept.master_id):
            return True
        if is_awaited(kept, self._liveness):
            return False
        await self.hold(name)
        return True

    def _notify(self, kept: ReplicaSet) -> None:
        """Notify all live members of a replica set of its master."""
        for broker_id, address in kept.addresses.items():
            if self._liveness.is_alive(kept.name, broker_id):
                self._session.keep_task(self._notify_one(address, kept))

    async def _notify_one(self, address: str, kept: ReplicaSet) -> None:
        header = NotifyBrokerRoleChangedRequestHeader(
            master_address=kept.master_address,
            master_epoch=kept.master_epoch,
            sync_state_set_epoch=kept.members_epoch,
            master_broker_id=kept.master_id,
        )
        body = members_body(kept)
        command = Command(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header.encode(), body)
        try:
            async with asyncio.timeout(_NOTICE_SECONDS):
                await self._session.invoke_oneway(address, command)
        except (MQError, OSError, TimeoutError) as error:
            # The broker itself asks again every five seconds.
            log.warning("cannot notify %s of its master: %s", address, error or "no connection")


def members_body(kept: ReplicaSet) -> bytes:
    """The sync state set as the body of replies and notices."""
    return SyncStateSet(
        sync_state_set=set(kept.members), sync_state_set_epoch=kept.members_epoch
    ).encode()
