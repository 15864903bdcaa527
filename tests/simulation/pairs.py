"""Pairs: masters with slaves in a scenario, and the loss of a master with its disk.

Invariants:

  acknowledged   at SEND_OK of a SYNC_MASTER a slave has the message in its queue, and the topic
                 with that queue
  the same log   after the last fault the common part of a slave's log equals its master's, byte for
                 byte
  caught up      and the slave reaches its master's end within CATCHES_UP seconds
  lost           when a master's machine is destroyed, its slave is promoted as documented (stop it,
                 set brokerRole and brokerId=0, start it); the model then expects what replication
                 promises: every SEND_OK of a SYNC_MASTER, and what the slave had of an ASYNC_MASTER

With ASYNC_FLUSH a slave that loses power may lose acknowledged messages. That is excused until it
has reached its master's end again: two machines have failed then.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation import seams
from tests.simulation.cluster import Cluster, Daemon
from tests.simulation.fault_kinds import bodies_from
from tests.simulation.faults import End, Target, back
from tests.simulation.inode import Inode
from tests.simulation.model import Model
from tests.simulation.model.content import number_in
from tests.simulation.world import START, World

# Seeds with pairs, and the settings that make a minute long enough for them.
EVERY = 3
SETTINGS = {
    "slaveTimeout": "1000",
    "haHousekeepingInterval": "5000",
    "haSendHeartbeatInterval": "1000",
}
# With this setting reads go to slaves for every message before the end; otherwise only for old
# ones.
READS = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
# A slave notices that its connection is dead, pauses (at most 5 s), connects and compares.
CATCHES_UP = 20.0
# Two rounds of copies of the tables, and a margin.
COPIES_SECONDS = 25.0
# The interval of checks whether a slave has everything of its master, and the time of data in
# flight.
_LOOK, _UNDER_WAY = 0.25, 1.0
# Longest time of a round of copies; requested values may be that old.
_ROUND_SECONDS = 10.0
# Seconds until a slave is promoted, and until the lost machine is replaced.
BY_HAND = (0.2, 4.0)
_REPLACED = (1.0, 8.0)


def has_pairs(seed: int) -> bool:
    """Whether the brokers of a seed have slaves."""
    return seed % EVERY == 0


@dataclass
class _Copy:
    """What is known of a slave."""

    even_at: float = 0.0  # when it last had everything of its master
    copied_at: float = 0.0  # when it last had copied everything outside the log
    is_unsafe: bool = False  # it lost power and has not reached its master's end since


@dataclass
class Pair:
    """A master and its slaves."""

    master: Daemon
    slaves: list[Daemon]
    role: str
    is_read: bool  # whether slaves are read from while the master is up
    is_lost: bool = False  # whether the first master is lost
    copies: dict[Daemon, _Copy] = field(default_factory=dict)

    @property
    def is_sync(self) -> bool:
        return self.role == "SYNC_MASTER"


class Pairs:
    """All pairs of a cluster. `add` creates them, `watch` starts the checks."""

    def __init__(self, cluster: Cluster, model: Model, random: Random) -> None:
        self._cluster = cluster
        self._model = model
        self._random = random
        self._world: World = cluster.world
        self.all: list[Pair] = []

    def add(self) -> None:
        """Add a master and one slave, sometimes two."""
        random, cluster = self._random, self._cluster
        role = random.choice(("SYNC_MASTER", "SYNC_MASTER", "ASYNC_MASTER"))
        reads = READS if random.random() < 0.4 else {}
        settings = {**SETTINGS, **reads}
        count = 2 if random.random() < 0.2 else 1
        master = cluster.add_broker(brokerRole=role, **settings)
        slaves = [cluster.add_slave(master, number, **settings) for number in range(1, count + 1)]
        pair = Pair(master, slaves, role, bool(reads), copies={slave: _Copy() for slave in slaves})
        self.all.append(pair)
        is_flushed = cluster.settings["flushDiskType"] == "SYNC_FLUSH"
        self._model.shows_early = pair.is_sync and is_flushed and not pair.is_read
        self._world.met(f"a seed with a {role}")
        if count > 1:
            self._world.met("two slaves")
        if reads:
            self._world.met("slaves that are read from")

    def watch(self) -> None:
        """Start to watch the progress of slaves."""
        for pair in self.all:
            for slave in pair.slaves:
                self._look_at(pair, slave)
        self._world.at(self._world.now + _LOOK, self.watch)

    def _look_at(self, pair: Pair, slave: Daemon) -> None:
        copy, now = pair.copies[slave], self._world.now
        app = slave.app
        if app is None:
            return
        age = app.metadata.synchronize.age() if app.metadata.synchronize is not None else -1.0
        if self._is_even(pair, slave):
            copy.even_at, copy.is_unsafe = now, False
            if age >= 0:  # values that waited for the log have been applied
                copy.copied_at = now - age

    @staticmethod
    def _is_even(pair: Pair, slave: Daemon) -> bool:
        """Whether a slave has, as safely as it promises, everything of its master."""
        if slave.app is None or pair.master.app is None:
            return False
        part = slave.app.replication.slave
        if part is None or part.connection is None:
            return False
        end: int = pair.master.app.stores.messages.log.written
        return bool(slave.app.stores.messages.replica.safe >= end)

    # continuous checks --------------------------------------------------------------------------

    def acknowledged(self, broker: str, topic: str, queue_id: int, offset: int, at: float) -> None:
        """A master has answered SEND_OK for a message sent at a time."""
        pair = next((pair for pair in self.all if pair.master.name == broker), None)
        if pair is None or not pair.is_sync or not pair.slaves:
            return
        ends = []
        for daemon in (pair.master, *pair.slaves):
            process = daemon.process
            if process is None or not process.is_alive or process.started >= at:
                return  # it may have been truncated with the end of its master
            if daemon.app is None:
                return
            stores = daemon.app.stores
            if daemon is not pair.master and stores.topics.knows(topic, queue_id):
                ends.append(stores.messages.max_offset(topic, queue_id))
        if max(ends, default=0) <= offset:
            self._model.wrong(
                f"{broker} has acknowledged {offset} of {topic} {queue_id}, and no slave serves "
                f"it: those that know the queue end at {ends}"
            )

    def lost_power(self, target: Target, unflushed: float) -> None:
        """A slave that may lose unflushed data is about to lose power."""
        for pair in self.all:
            for slave in pair.slaves:
                if slave is target:
                    copy = pair.copies[slave]
                    copy.even_at = min(copy.even_at, self._world.now - unflushed)
                    copy.is_unsafe = True

    def lost_unshown(self, target: Target) -> None:
        """A broker with SYNC_FLUSH is about to lose power. If both disks work in parallel, its
        slave may have shown messages that are not on the disk here.
        """
        for pair in self.all:
            if pair.master is target and pair.is_sync and not pair.is_read:
                now = self._world.now
                self._model.may_be_lost(target.name, now, now, keeps_acknowledged=True)

    @property
    def may_lag(self) -> bool:
        """Whether a client that reads from a slave may miss acknowledged messages."""
        sure = [
            pair for pair in self.all
            if pair.is_sync and len(pair.slaves) == 1 and not pair.is_lost
        ]  # fmt: skip
        return len(sure) < len(self.all)

    # loss of a master ---------------------------------------------------------------------------

    def destroy(self, target: Target) -> End:
        """Destroy a master's machine and disk; returns a function that promotes a slave."""
        pair = next((pair for pair in self.all if pair.master is target), None)
        if pair is None or pair.is_lost or not pair.slaves:
            return lambda: None
        pair.is_lost = True
        heir = self._choose(pair)
        self._excuse(pair, heir)
        pair.master.is_lost = True
        pair.master.lose_power()
        return lambda: self._promote(pair, heir)

    def _choose(self, pair: Pair) -> Daemon:
        """The slave with the most of the master's log, as its haStatus showed."""
        own = log_files(pair.master)
        return max(pair.slaves, key=lambda slave: common_bytes(own, log_files(slave)))

    def _excuse(self, pair: Pair, heir: Daemon) -> None:
        """Tell the model what may be lost with the master."""
        model, now, copy = self._model, self._world.now, pair.copies[heir]
        own = log_files(pair.master)
        end = common_bytes(own, log_files(heir))
        since = copy.even_at - _UNDER_WAY
        for body in _bodies_behind(own, end):
            sent = model.sent.get(number_in(body))
            if sent is not None:
                since = min(since, sent.at)
        is_kept = pair.is_sync and not any(one.is_unsafe for one in pair.copies.values())
        model.may_be_lost(pair.master.name, since, now, keeps_acknowledged=is_kept)
        model.fails_over(pair.master.name, copy.copied_at - _ROUND_SECONDS, now)
        self._world.tell(
            "scenario",
            f"{heir.machine.name} has the log up to {end}, and all since {since - START:.3f} s"
            f"{' that was acknowledged' if is_kept else ' may be lost'}",
        )

    def _promote(self, pair: Pair, heir: Daemon) -> None:
        """Stop a slave, set brokerRole and brokerId=0, and start it. Other slaves follow it by
        themselves.
        """
        world, cluster, lost = self._world, self._cluster, pair.master
        pair.slaves.remove(heir)
        is_replaced = self._random.random() < 0.5
        if not pair.slaves and not is_replaced:
            pair.role = "ASYNC_MASTER"
        own_id = heir.settings["brokerId"]
        heir.settings.update(brokerRole=pair.role, brokerId="0")
        world.tell("scenario", f"{heir.name} is made the master: it is {lost.name} from now on")
        own_name = heir.name
        cluster.replace(lost, heir)
        for slave in pair.slaves:
            pair.copies[slave] = _Copy(copied_at=pair.copies[slave].copied_at)
        pair.master = heir
        heir.terminate()
        back(heir)
        if is_replaced:
            seconds = self._random.uniform(*_REPLACED)
            world.at(world.now + seconds, lambda: self._replace(pair, lost, own_name, own_id))

    def _replace(self, pair: Pair, lost: Daemon, name: str, broker_id: str) -> None:
        """Replace the lost machine by a new one with an empty disk, as a slave."""
        lost.name = name
        lost.settings.update(brokerRole="SLAVE", brokerId=broker_id)
        machine = lost.machine
        faults, chance = machine.disk.faults, machine.disk.random
        machine.disk = seams.make_disk(machine.name)
        machine.disk.random, machine.disk.faults = chance, faults
        lost.is_lost = False
        self._world.tell("scenario", f"an empty machine is {name} from now on, a slave")
        self._world.met("an empty slave comes to a log that is there")
        pair.slaves.append(lost)
        pair.copies[lost] = _Copy()
        self._cluster.slaves.append(lost)
        back(lost)

    # final checks -------------------------------------------------------------------------------

    def check(self) -> None:
        """Slaves reach their masters' ends and have the same log."""
        for pair in self.all:
            for slave in pair.slaves:
                self._check(pair, slave)

    def _check(self, pair: Pair, slave: Daemon) -> None:
        world, model = self._world, self._model
        if pair.master.app is None:
            model.wrong(f"{pair.master.name} does not serve")
            return
        end = pair.master.app.stores.messages.log.written

        def has_come() -> bool:
            app = slave.app
            return app is not None and app.stores.messages.log.written >= end

        world.run(world.now + CATCHES_UP, has_come)
        if not has_come():
            at = None if slave.app is None else slave.app.stores.messages.log.written
            why = "" if slave.app is None else slave.app.replication.slave.problem
            model.wrong(f"{slave.name} is at {at}, {pair.master.name} at {end}: {why}")
            return
        own, other = log_files(pair.master), log_files(slave)
        written: Any = min(one.app.stores.messages.log.written for one in (pair.master, slave))
        if (common := common_bytes(own, other)) < written:
            model.wrong(
                f"the log of {slave.name} is another than that of {pair.master.name} from {common} "
                f"on, they end at {written}"
            )


def log_files(daemon: Daemon) -> dict[int, Inode]:
    """The files of a log, by their first physical offset."""
    found = {}
    for path, inode in daemon.machine.disk.files():
        folder, _, name = path.rpartition("/")
        if folder.endswith("/commitlog") and name.isdigit():
            found[int(name)] = inode
    return found


def common_bytes(one: dict[int, Inode], other: dict[int, Inode]) -> int:
    """The offset up to which two logs have the same bytes, from their common start."""
    both = sorted(one.keys() & other.keys())
    end = 0
    for start in both:
        left, right = one[start].content(), other[start].content()
        if left != right:
            pairs = enumerate(zip(left, right, strict=False))
            shorter = min(len(left), len(right))
            return start + next((at for at, (a, b) in pairs if a != b), shorter)
        end = start + len(left)
    return end


def _bodies_behind(logs: dict[int, Inode], end: int) -> list[bytes]:
    """The bodies of the records of a log that end after an offset."""
    named = {f"{start:020d}": inode for start, inode in logs.items()}
    first = next((start for start in sorted(logs, reverse=True) if start <= end), None)
    if first is None:
        return bodies_from(named, "", 0)
    return bodies_from(named, f"{first:020d}", end - first)
