"""Elections as a controller holds them: when a master is dead, or a broker or administrator asks.

is_due   a master has ended or fallen silent: an election is due at once
         all are when this controller begins to lead: whom it knows to be dead may be master
scan     whatever was missed is found by looking
notices  who lives of a set is told of its new master
"""

import asyncio
import logging
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.session import Session
from mq.daemons.controller.config import ControllerSettings
from mq.daemons.controller.election import elect, is_awaited
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
# An election that etcd has not confirmed, or for which a heartbeat is awaited, is tried again.
_RETRY_SECONDS = 0.3


@dataclass(frozen=True)
class Election:
    """What became of an election: the set behind it, and whether it has a new master."""

    kept: ReplicaSet
    is_new: bool


class Elections:
    """Holds them. ``session`` is what brokers are told by."""

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
        self.held = 0  # that have found a master
        self.failed = 0  # that found nobody

    def is_due(self, name: str) -> None:
        """A broker of a set lives no more: if it was the master, there is an election."""
        self._due[name] = None
        self._wake.set()

    def all_are_due(self) -> None:
        """Any master may be dead, as one that has died while nobody led."""
        for kept in self._registry:
            if kept.master_id is not None:
                self._due[kept.name] = None
        self._wake.set()

    async def work(self) -> None:
        """Hold the elections that are due. A task."""
        while True:
            self._wake.clear()
            if not self._due:
                await self._wake.wait()
            elif not await self._hold_due():
                await asyncio.sleep(_RETRY_SECONDS)

    async def _hold_due(self) -> bool:
        """Look once at each set that is due now; False if any is to be tried again.

        All that wait wait together: anybody can register sets that do. What etcd refuses for one it
        would for the next, and all sets are read again for each: the pause comes at once then. One
        is due until its look has come to its end, whatever is raised.
        """
        all_done = True
        for name in list(self._due):
            del self._due[name]  # before: whom this one elects may be dead when it is written
            done = False
            try:
                done = await self._elect_if_dead(name)
            except Refused as error:
                log.warning("no election of %s: %s", name, error.remark)
                return False
            finally:
                if not done:
                    self._due[name] = None  # behind the others
            if not done:
                all_done = False
                await asyncio.sleep(0)  # there may be thousands
        return all_done

    async def scan(self) -> None:
        """Look for silent brokers and dead masters again and again. A task."""
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
        """Elect a master for a set; None if there is no such set. ``broker_id`` is who asks, or,
        if `designated`, who is to be it.

        Raises Refused as `Registry.change` does. A set whose master may live keeps it; one that
        finds nobody keeps its state if a broker has asked, and else has no master from now on.
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
                found = broker_id  # the first that asks; nobody has written anything yet
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
                "broker %s is the master of %s, epoch %d",
                changed.master_id,
                name,
                changed.master_epoch,
            )
            if self._settings.controller.notify_broker_role_changed:
                self._tell(changed)
        elif changed.master_id is None:
            self.failed += 1
            log.error(
                "nobody can be the master of %s: none of %s lives, which are in sync",
                name,
                sorted(changed.members),
                extra={"failure": f"elections of {name}"},
            )
        return Election(changed, is_new)

    async def _elect_if_dead(self, name: str) -> bool:
        """Elect if a master is dead; False if that is to be tried again. Raises Refused where etcd
        has not confirmed it."""
        try:
            kept = self._registry.get(name)
        except Refused:
            # Another leads, and sees what we see; or etcd is asked, and then it is due still.
            return not self._registry.is_in_doubt
        if kept is None or kept.master_id is None:
            return True
        if self._liveness.may_live(name, kept.master_id):
            return True
        if is_awaited(kept, self._liveness):
            return False
        await self.hold(name)
        return True

    def _tell(self, kept: ReplicaSet) -> None:
        """Tell everyone who lives of a set of its master."""
        for broker_id, address in kept.addresses.items():
            if self._liveness.is_alive(kept.name, broker_id):
                self._session.keep_task(self._tell_one(address, kept))

    async def _tell_one(self, address: str, kept: ReplicaSet) -> None:
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
            # It asks again every five seconds, by itself.
            log.warning("%s is not told of its master: %s", address, error or "no connection")


def members_body(kept: ReplicaSet) -> bytes:
    """Who is in sync, as answers and notices have it."""
    return SyncStateSet(
        sync_state_set=set(kept.members), sync_state_set_epoch=kept.members_epoch
    ).encode()
