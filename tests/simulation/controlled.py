"""Controlled sets in a scenario: brokers whose master is elected by controllers, with
allAckInSyncStateSet.

Invariants:

  acknowledged   SEND_OK: each broker in sync, according to the controllers, has the message in its
                 queue, and the topic with that queue
  kept           that holds whatever dies, even if the disk of a member is lost while another
                 member is in sync
  one master     no two brokers are master in the same epoch
  shown          no member shows messages that another member in sync lacks
  not cut        a delivered message is in its place at the end
  the same log   after the last fault all members have the master's log and epochs

With ASYNC_FLUSH a member that lost power may lack messages until it is out of sync or has
everything of the master. If it becomes master before, messages acknowledged since its last flush
may be lost, provided that something was wrong with all other members in sync, or with controllers
or etcd. Otherwise one of the others must be elected.

Controllers may elect a member that has lost its disk and is not missed yet when its master dies.
Then another one is elected with enableElectUncleanMaster, which need not have everything.

The model treats the set as one broker (`Face`), the current master. Actions of groups and
administrators since the last copy of the new master's tables may be forgotten, as with pairs.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

from tests.simulation import seams
from tests.simulation.cluster import CONTROLLER_PORT, Cluster, Daemon
from tests.simulation.etcd import Etcd
from tests.simulation.faults import End, Target, back
from tests.simulation.model import Model
from tests.simulation.pairs import CATCHES_UP, READS, common_bytes, log_files
from tests.simulation.world import START, Machine, World

# Seeds with controlled sets: none that have pairs.
EVERY, _FIRST = 9, 5
SETTINGS = {
    "allAckInSyncStateSet": "true",
    "slaveTimeout": "1000",
    "haHousekeepingInterval": "5000",
    "haSendHeartbeatInterval": "1000",
    "haMaxTimeSlaveNotCatchup": "5000",
}
NAME = "broker-a"
_LOOK = 0.1
# Longest time of a copy of the tables by a slave; requested values may be that old.
_ROUND_SECONDS = 10.0
_REPLACED = (1.0, 8.0)
# With ASYNC_FLUSH and a slow disk a power cut loses messages of the last seconds.
UNFLUSHED = 15.0
# Faults of the last seconds may still have an effect.
_TROUBLE = 15.0
# Seconds from the loss of a master until another one serves, in a calm cluster.
ELECTED = 25.0


def is_controlled(seed: int) -> bool:
    """Whether controllers manage the brokers of a seed."""
    return seed % EVERY == _FIRST


@dataclass
class _Copy:
    """What is known of a member."""

    id: int = 0  # by which controllers know it
    copied_at: float = START  # when it last had copied everything outside the log
    lacks_since: float = inf  # it lost power, and later messages may be missing
    cut_at: float = 0.0  # the time of that power cut
    others: list[Daemon] = field(default_factory=list)  # other members in sync with it


class Face:
    """The set as others see it: one broker, at the address of the current master."""

    def __init__(self, sets: "ControlledSet") -> None:
        self.name = NAME
        self.on_stopped: Callable[[Daemon, Any], None] = lambda daemon, app: None
        self.stops: list[tuple[float, float]] = []
        self.crashes: list[float] = []
        self._set = sets

    @property
    def master(self) -> Daemon:
        """The current or last master."""
        return self._set.master

    @property
    def app(self) -> Any:
        return self._set.serving

    @property
    def address(self) -> str:
        return self.master.address

    @property
    def machine(self) -> Machine:
        return self.master.machine

    @property
    def starts(self) -> int:
        return self._set.elections + sum(one.starts for one in self._set.members)

    @property
    def locks_since(self) -> float:
        return self._set.serves_since

    @property
    def is_clock_right(self) -> bool:
        return all(one.is_clock_right for one in self._set.members)


class ControlledSet:
    """A set of brokers, its controllers, and etcd."""

    def __init__(self, cluster: Cluster, model: Model, random: Random) -> None:
        self._cluster = cluster
        self._model = model
        self._random = random
        self._world: World = cluster.world
        self._etcd = Etcd()
        self._copies: dict[Daemon, _Copy] = {}
        self._of_epoch: dict[int, Daemon] = {}
        self._broker: Any = None  # the last known master
        self._lost_ids: set[int] = set()
        self._is_by_hand = False
        self._known: tuple[int, dict[str, Any]] = (0, {})  # `_kept` at a revision of etcd
        self._controllers: list[Daemon] = []
        self._failed_over = START  # since when the next master may not know everything
        # Whether nothing was wrong with a machine for some seconds.
        self.is_well: Callable[[Target, float], bool] = lambda target, seconds: True
        self.members: list[Daemon] = []
        self.elections = 0
        self.serves_since = -inf
        self.master: Daemon

    def add(self) -> None:
        """Add two or three brokers, as many controllers, and one or two etcd members."""
        random, cluster = self._random, self._cluster
        members = [cluster.add_etcd(self._etcd, n) for n in range(1, random.randint(1, 2) + 1)]
        controllers = [
            cluster.add_controller(number, members)
            for number in range(1, random.choice((2, 2, 3)) + 1)
        ]
        self._controllers = controllers
        addresses = ";".join(f"{one.address}:{CONTROLLER_PORT}" for one in controllers)
        settings = {**SETTINGS, "controllerAddr": addresses}
        count = random.choice((2, 2, 3))
        if random.random() < 0.4:
            settings |= READS
            self._world.met("members that are read from")
        if count == 3 and random.random() < 0.25:
            settings["minInSyncReplicas"] = "2"
        self.members = [
            cluster.add_member(NAME, number, **settings) for number in range(1, count + 1)
        ]
        self._copies = {member: _Copy() for member in self.members}
        self.master = self.members[0]
        cluster.brokers.append(Face(self))
        self._world.met(f"a controlled set of {count}")

    # continuous checks ----------------------------------------------------------------------------

    def watch(self) -> None:
        """Start to watch the master."""
        self.look()
        self._world.at(self._world.now + _LOOK, self.watch)

    def look(self) -> None:
        """Read the current master and the progress of the others."""
        acting = []
        for member in self.members:
            app = member.app
            broker = None if app is None else app.broker
            if app is not None and app.member.broker_id:
                self._copies[member].id = app.member.broker_id
            if broker is None:
                continue
            if broker.replication.state is not None:
                acting.append((broker.replication.last_epoch, member, broker))
            elif broker.metadata.synchronize is not None:
                self._look_whether_even(member, broker)
                age = broker.metadata.synchronize.age()
                if age >= 0:
                    self._copies[member].copied_at = self._world.now - age
        for epoch, member, _ in acting:
            self._check_alone(epoch, member)
        self._check_shown()
        if self._lost_ids.issuperset(self._kept().get("syncStateSet", (0,))):
            self._elect_by_hand()
        if acting:
            _, member, broker = max(acting, key=lambda one: one[0])
            self._follow(member, broker)
            if len(acting) > 1:
                self._world.met("a master that does not know of the next one")
                self._forgets(self._failed_over)

    def lost_power(self, target: Target) -> None:
        """A member with ASYNC_FLUSH is about to lose power."""
        for member, copy in self._copies.items():
            if member is target:
                copy.lacks_since = min(copy.lacks_since, self._world.now - UNFLUSHED)
                copy.cut_at = self._world.now
                copy.others = [one for one in self.in_sync() if one is not member]

    def _look_whether_even(self, member: Daemon, broker: Any) -> None:
        copy, master = self._copies[member], self.serving
        if copy.lacks_since == inf or master is None:
            return
        has_all = (
            broker.replication.slave.connection is not None
            and broker.stores.messages.log.written >= master.stores.messages.log.written
        )
        if has_all or member not in self.in_sync():
            copy.lacks_since = inf

    def _elect_by_hand(self) -> None:
        """All members in sync have lost their disks: let controllers elect others, and restart
        them.
        """
        if self._is_by_hand:
            return
        self._is_by_hand = True
        self._world.met("a member that had lost its disk was elected")
        self._world.tell("scenario", "any member may be elected, in sync or not")
        self._model.may_be_lost(NAME, START, inf)
        for controller in self._controllers:
            controller.settings["enableElectUncleanMaster"] = "true"
            controller.terminate()
            controller.start()

    def _check_alone(self, epoch: int, member: Daemon) -> None:
        before = self._of_epoch.setdefault(epoch, member)
        if before is not member:
            self._model.wrong(f"{before.name} and {member.name} are both master in epoch {epoch}")

    def _check_shown(self) -> None:
        # A member that truncates its log lowers the confirm offset in the same turn.
        shown = {
            member.name: min(
                member.app.broker.replication.confirmed,
                member.app.broker.stores.messages.log.written,
            )
            for member in self.members
            if member.app is not None and member.app.broker is not None
        }
        furthest = max(shown, key=lambda name: shown[name], default="")
        for member in self.in_sync():
            if member.name not in shown or self._copies[member].lacks_since < inf:
                continue
            end = member.app.broker.stores.messages.log.written
            if end < shown[furthest]:
                self._model.wrong(
                    f"{furthest} shows what is before {shown[furthest]}, and {member.name}, which "
                    f"is in sync, ends at {end}"
                )

    def _follow(self, member: Daemon, broker: Any) -> None:
        if broker is self._broker:
            return
        is_first = self._broker is None
        self._broker = broker
        self.serves_since = -inf if is_first else self._world.now
        if member is not self.master and not is_first:
            self.elections += 1
            self._world.met("another master in a controlled set")
            self._forgets(self._copies[member].copied_at - _ROUND_SECONDS)
        self._world.tell("scenario", f"{member.name} is the master of {NAME}")
        if self._is_excused(self._copies[member]):
            self._world.met("a master that may lack something, as others failed, too")
            self._model.may_be_lost(NAME, self._copies[member].lacks_since, self._world.now)
        self._copies[member].lacks_since = inf
        self.master = member

    def _is_excused(self, copy: _Copy) -> bool:
        """Whether a new master may lack acknowledged messages."""
        if copy.lacks_since == inf:
            return False
        seconds = self._world.now - copy.cut_at + _TROUBLE
        is_kept = all(self.is_well(keeper, seconds) for keeper in self._cluster.keepers)
        return not (is_kept and any(self.is_well(other, seconds) for other in copy.others))

    def _forgets(self, since: float) -> None:
        """The next master may not know actions at the old one since a moment."""
        self._failed_over = since
        self._model.fails_over(NAME, since, self._world.now)

    @property
    def serving(self) -> Any:
        """The current master, None while there is none."""
        app = self.master.app
        broker = None if app is None else app.broker
        return broker if broker is not None and broker.replication.state is not None else None

    def _kept(self) -> dict[str, Any]:
        """The set as controllers keep it in etcd."""
        if self._known[0] != self._etcd.revision:
            found: dict[str, Any] = {}
            for key, pair in self._etcd.pairs.items():
                if key.endswith(f"/sets/{NAME}".encode()):
                    found = json.loads(base64.b64decode(pair.value))
            self._known = self._etcd.revision, found
        return self._known[1]

    def in_sync(self) -> list[Daemon]:
        """The members in sync, according to controllers, that have not lost their disks."""
        ids = set(self._kept().get("syncStateSet", ())) - self._lost_ids
        return [member for member, copy in self._copies.items() if copy.id in ids]

    def acknowledged(self, topic: str, queue_id: int, offset: int, at: float) -> None:
        """A master has answered SEND_OK for a message sent at a time."""
        self.look()
        for member in self.in_sync():
            if self._copies[member].lacks_since < inf:
                continue
            process = member.process
            broker = None if member.app is None else member.app.broker
            if process is None or not process.is_alive or broker is None:
                continue
            end = broker.stores.messages.end_offset(topic, queue_id)
            if end <= offset:
                self._model.wrong(
                    f"{offset} of {topic} {queue_id} is acknowledged, and {member.name}, which is "
                    f"in sync, ends at {end}"
                )
            elif not broker.stores.topics.knows(topic, queue_id):
                self._model.wrong(
                    f"{offset} of {topic} {queue_id} is acknowledged, and {member.name}, which is "
                    f"in sync, does not know the queue"
                )

    # loss of a member -----------------------------------------------------------------------------

    def destroy(self, target: Target) -> End:
        """Destroy a member's machine and disk, unless it is the last one in sync; returns a
        function that may replace it by an empty one.
        """
        member = next((one for one in self.members if one is target), None)
        if member is None or member.is_lost:
            return lambda: None
        if not [one for one in self.in_sync() if one is not member]:
            self._world.tell("scenario", f"{member.name} alone is in sync: it stays")
            return lambda: None
        self._world.met("loss of a member of a controlled set")
        self._lost_ids.add(self._copies[member].id)
        member.is_lost = True
        member.lose_power()
        is_replaced = self._random.random() < 0.5
        seconds = self._random.uniform(*_REPLACED)

        def over() -> None:
            if is_replaced:
                self._world.at(self._world.now + seconds, lambda: self._replace(member))

        return over

    def _replace(self, member: Daemon) -> None:
        """Give a member an empty disk and a new id."""
        machine = member.machine
        faults, chance = machine.disk.faults, machine.disk.random
        machine.disk = seams.make_disk(machine.name)
        machine.disk.random, machine.disk.faults = chance, faults
        member.is_lost = False
        self._copies[member] = _Copy()
        self._world.tell("scenario", f"{member.name} has an empty disk from now on")
        self._world.met("an empty member comes to a controlled set")
        back(member)

    # final checks ---------------------------------------------------------------------------------

    def check(self) -> None:
        """All members reach the master's end, are in sync, and have the same log."""
        left = [member for member in self.members if not member.is_lost]
        broker = self.serving
        if broker is None:
            self._model.wrong(f"{NAME} has no master")
            return
        end = broker.stores.messages.log.written

        def end_of(member: Daemon) -> int:
            one = None if member.app is None else member.app.broker
            return -1 if one is None else int(one.stores.messages.log.written)

        def has_settled() -> bool:
            return all(end_of(one) >= end for one in left) and len(self.in_sync()) == len(left)

        self._world.run(self._world.now + CATCHES_UP, has_settled)
        if not has_settled():
            ends = {one.name: end_of(one) for one in left}
            names = [one.name for one in self.in_sync()]
            self._model.wrong(f"{NAME} ends at {end}, its members at {ends}, in sync are {names}")
            return
        written = min(end_of(one) for one in left)
        for member in left:
            common = common_bytes(log_files(self.master), log_files(member))
            if common < written:
                self._model.wrong(
                    f"the log of {member.name} is another than that of {self.master.name} from "
                    f"{common} on, they end at {written}"
                )
        epochs = {tuple(one.app.broker.replication.epochs.all) for one in left}
        firsts = {each[-1] for each in epochs}
        if len(firsts) > 1:
            self._model.wrong(f"the members of {NAME} are in other epochs: {epochs}")

    def lose_master(self) -> bool:
        """Destroy the master and wait for the next; returns whether another member was in sync."""
        lost, world = self.master, self._world
        if len(self.in_sync()) < 2:
            return False
        world.tell("scenario", f"{lost.name} is destroyed, with its disk")
        self.destroy(lost)

        def has_next() -> bool:  # `watch` updates the state
            return self.master is not lost and self.serving is not None

        world.run(world.now + ELECTED, has_next)
        if not has_next():
            self._model.wrong(f"{NAME} has no master {ELECTED:g} s after it was lost")
        return True
