"""A scenario: a cluster, its clients, its faults, and whether all invariants held."""

import gc
import logging
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.simulation import fault_kinds, faults, identity, seams, seldom, snodes, workloads
from tests.simulation.cluster import ORDERLY, Cluster
from tests.simulation.controlled import ControlledSet, is_controlled
from tests.simulation.faults import Fault, Injector, Target
from tests.simulation.model import Model, Place
from tests.simulation.model.content import number_in
from tests.simulation.pairs import BY_HAND, COPIES_SECONDS, Pairs, has_pairs
from tests.simulation.route_watch import RouteWatch
from tests.simulation.snodes import has_snodes
from tests.simulation.tube import TubeScenario, has_tube
from tests.simulation.world import START, Stuck, World

assert fault_kinds  # imported for the kinds that it registers
assert seldom  # imported for the constants that it changes

WORK_BEGINS = START + 1.0
FAULTS_BEGIN = START + 3.0
FAULTS_END = START + 45.0
WORK_ENDS = START + 60.0
FAULTS = (5, 10)  # minimum and maximum
CALM = 0.1  # the share of seeds without faults
STOPS = 0.1  # the share of seeds whose only faults are orderly stops
ROT = 0.03  # the share of seeds whose disks change bits
ROTS = ("bit rot", "bit rot", "kill", "power cut", "restart", "stop", "terminate")
# Seconds after the last work within which everything is delivered.
SETTLES = 60.0
# Longest duration of a check of the stored messages, and the pause before the next one.
_LOOK_SECONDS, _LOOK_AGAIN = 30.0, 3.0
# Seconds for which a broker without flush promise may lose messages: flushIntervalCommitLog is half
# a second. The second value is for a broker with other faults: a slow disk, or stopped, or killed
# before its machine lost power.
_UNFLUSHED_SECONDS, _WITH_TROUBLE = 1.5, 15.0
_WELL_AGAIN = 12.0
# The loss of the first masters of pairs during the work: its share, and the time range.
_LOST_AMID_WORK, _LOST = 0.6, (START + 12.0, START + 40.0)
# The share of seeds in which the clock of a broker is wrong by minutes, and the share of those with
# timed messages, which this client sends. A fault of these kinds restarts the broker meanwhile.
_WRONG_CLOCKS, _WRONG_WITH_TIMED, _TIMED = 0.15, 0.8, "producer-of-Later"
_STARTS_AGAIN = ("kill", "power cut", "restart", "terminate")
# The share of seeds with slaves in which a client creates topics.
_NEW_TOPICS = 0.5
_PROMOTED = 2.0  # seconds from the loss of a master that is lost after the work

# A controlled set has additional faults: the share that hits its members, and their durations.
_MORE_FAULTS, _OF_MEMBERS = 3, 0.7
_MORE_KINDS = (
    "power cut",
    "power cut",
    "kill",
    "partition",
    "one way partition",
    "stop",
    "restart",
)
_SOME = (0.1, 0.5, 2.0, 5.0)

# Log texts of daemons that are counted as situations.
_TOLD = {
    "the master does not have it": "a slave cuts its end off",
    "no slave had the messages": "senders were told that no slave was in time",
    "is not a slave of this broker": "a master turns a slave away that has more",
}


@dataclass(frozen=True)
class Variant:
    """The faults and clients left out of a seed's scenario, and the noise in it."""

    faults: frozenset[int] | None = None  # numbers of the remaining faults; None: all
    clients: frozenset[str] | None = None  # names of the remaining clients; None: all
    work_seconds: float = WORK_ENDS - START
    noise: int = 0

    def arguments(self) -> str:
        """The options of the command."""
        found = []
        if self.faults is not None:
            found.append("--faults " + (",".join(map(str, sorted(self.faults))) or "none"))
        if self.clients is not None:
            found.append("--clients " + (",".join(sorted(self.clients)) or "none"))
        if self.work_seconds != WORK_ENDS - START:
            found.append(f"--work-seconds {self.work_seconds:g}")
        if self.noise:
            found.append(f"--noise {self.noise}")
        return " ".join(found)


WHOLE = Variant()


@dataclass
class Result:
    """The result of a seed."""

    seed: int
    variant: Variant
    problems: list[str]
    checksum: int
    faults: dict[str, int]
    situations: dict[str, int]
    requests: int
    plan: list[Fault]
    clients: list[str]
    lines: list[str] = field(repr=False, default_factory=list)
    details: list[tuple[int, str]] = field(repr=False, default_factory=list)
    seconds: float = 0.0  # simulated
    steps: int = 0


class LogToTrace(logging.Handler):
    """Adds warnings and errors of the daemons to the story."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = self._world.current
        if process is not None:
            text = record.getMessage()
            for words, situation in _TOLD.items():
                if words in text:
                    self._world.met(situation)
            self._world.tell(process.name, f"{record.levelname.lower()}: {text}")


def run(seed: int, variant: Variant = WHOLE) -> Result:
    """Run the scenario of a seed, or a variant of it."""
    sys.unraisablehook = lambda _: None  # of coroutines that were interrupted
    is_collected = gc.isenabled()  # not in a process that ends soon (children.py)
    gc.disable()  # garbage collection is not determined by the seed
    identity.begin()
    world = World(seed, variant.noise)
    seams.use(world)
    handler = LogToTrace(world)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        if has_tube(seed):
            return _run_tube(world, seed, variant)
        return _Scenario(world, seed, variant).run()
    finally:
        root.removeHandler(handler)
        seams.use(None)
        if is_collected:
            gc.collect()
            gc.enable()


def _run_tube(world: World, seed: int, variant: Variant) -> Result:
    """Run a seed with TubeMQ."""
    one = TubeScenario(world, variant.work_seconds)
    plan, problems = one.run(variant.faults, variant.clients)
    return Result(
        seed, variant, problems, world.trace.checksum, world.faults, world.situations,
        one.model.requests, plan, [client.name for client in one.cluster.clients],
        world.trace.lines, world.trace.details, world.now - START, world.steps,
    )  # fmt: skip


def drawn(seed: int) -> tuple[str, list[Fault]]:
    """The flush mode and the faults of a seed, without running it."""
    world = World(seed)
    seams.use(world)
    try:
        if has_tube(seed):
            tube = TubeScenario(world, WHOLE.work_seconds)
            return tube.flush, tube.draw()[1]
        one = _Scenario(world, seed, WHOLE)
        return one.flush, one.draw()[1]
    finally:
        seams.use(None)


def _is_up(target: Target) -> bool:
    return target.process is not None and target.process.is_alive


class _Scenario:
    def __init__(self, world: World, seed: int, variant: Variant) -> None:
        self.world = world
        self.seed = seed
        self.variant = variant
        self.random = world.stream("scenario", is_noisy=False)
        self.flush = self.random.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        self.model = Model(self.flush)
        self.cluster = Cluster(world, {"flushDiskType": self.flush})
        for _ in range(self.random.randint(1, 2)):
            self.cluster.add_name_server()
        count = self.random.randint(1, 2)
        chance = world.stream("pairs", is_noisy=False)
        self.pairs = Pairs(self.cluster, self.model, chance)
        self.set: ControlledSet | None = None
        if is_controlled(seed):
            chance = world.stream("controlled set", is_noisy=False)
            self.set = ControlledSet(self.cluster, self.model, chance)
            self.set.add()
            self.model.shows_confirmed = True
        elif has_pairs(seed):
            self.pairs.add()
        else:
            for _ in range(count):
                self.cluster.add_broker()
            if has_snodes(seed):
                snodes.add(self.cluster, world.stream("snodes", is_noisy=False))
        self.work_ends = START + variant.work_seconds
        self.context = workloads.Context(
            self.cluster, self.model, self.random, self.work_ends,
            on_acknowledged=self._acknowledged,
            may_lag=lambda: self.set is not None or self.pairs.may_lag,
        )  # fmt: skip

    def _acknowledged(self, place: Place, at: float) -> None:
        if self.set is None:
            self.pairs.acknowledged(*place, at)
        else:
            self.set.acknowledged(place.topic, place.queue_id, place.offset, at)

    def draw(self) -> tuple[dict[str, workloads.Workload], list[Fault]]:
        """The clients by their names, and the faults."""
        chosen = workloads.choose(self.random, self.cluster, self.model)
        # Without faults more is promised: everything once and in time.
        share = self.random.random()
        count = 0 if share < CALM else self.random.randint(*FAULTS)
        kinds = ORDERLY if share < CALM + STOPS else ROTS if share < CALM + STOPS + ROT else ()
        has_copies = bool(self.pairs.all) or self.set is not None
        if has_copies and kinds is ROTS:
            kinds = ()
        names = list(chosen)
        plan = faults.plan(self.world, self.cluster, FAULTS_BEGIN, FAULTS_END, count, names, kinds)
        if has_copies:
            chance = self.world.stream("new topics", is_noisy=False)
            if chance.random() < _NEW_TOPICS:
                chosen["creator"] = workloads.create(1.2)
        if has_copies and count and not kinds:
            plan += self._losses(count + 1)
        if self.set is not None and count and not kinds:
            plan += self._of_the_set(count + 2)
        if count and not kinds:
            plan += self._clocks(count + 2 + _MORE_FAULTS, is_timed=_TIMED in names)
        return chosen, plan

    def _of_the_set(self, first: int) -> list[Fault]:
        """More faults of the members of a controlled set, of its controllers and of etcd."""
        found = []
        for number in range(first, first + _MORE_FAULTS):
            chance = self.world.stream(f"plan of fault {number}", is_noisy=False)
            of_members = chance.random() < _OF_MEMBERS
            targets = self.cluster.members if of_members else self.cluster.keepers
            at, seconds = chance.uniform(FAULTS_BEGIN, FAULTS_END - 8.0), chance.choice(_SOME)
            kind, target = chance.choice(_MORE_KINDS), chance.choice(targets).name
            found.append(Fault(at, seconds * chance.uniform(0.5, 1.5), kind, target, number))
        return found

    def _clocks(self, first: int, *, is_timed: bool) -> list[Fault]:
        """The clock of a broker is wrong by minutes for a while, during which it may restart."""
        chance = self.world.stream("wrong clocks", is_noisy=False)
        if chance.random() >= (_WRONG_WITH_TIMED if is_timed else _WRONG_CLOCKS):
            return []
        kind = chance.choice(("clock ahead", "clock ahead", "clock behind"))
        at, seconds = chance.uniform(FAULTS_BEGIN, FAULTS_END - 8.0), chance.uniform(0.5, 8.0)
        target = chance.choice(self.cluster.members if self.set else self.cluster.brokers).name
        found = [Fault(at, seconds, kind, target, first)]
        if chance.random() < 0.5:
            again, kind = at + chance.uniform(0.0, seconds), chance.choice(_STARTS_AGAIN)
            found.append(Fault(again, chance.choice(_SOME), kind, target, first + 1))
        return found

    def _losses(self, number: int) -> list[Fault]:
        """The loss of a master during the work."""
        chance = self.world.stream("loss of a master", is_noisy=False)
        if chance.random() >= _LOST_AMID_WORK:
            return []
        at, seconds = chance.uniform(*_LOST), chance.uniform(*BY_HAND)
        if self.set is not None:
            name = chance.choice(self.set.members).name
            return [Fault(at, seconds, "loss of a member", name, number)]
        name = self.pairs.all[0].master.name
        return [Fault(at, seconds, "loss of a master", name, number)]

    def run(self) -> Result:
        world, cluster = self.world, self.cluster
        destroy = self.pairs.destroy if self.set is None else self.set.destroy
        injector = self._injector = Injector(cluster, self._loses, self._rots, destroy)
        if self.set is not None:
            self.set.is_well = lambda target, seconds: injector.is_well(target, 0, seconds)
        watch = RouteWatch(cluster, injector.overlays)
        chosen, plan = self.draw()
        if self.variant.faults is not None:
            plan = [fault for fault in plan if fault.number in self.variant.faults]
        plan = [fault for fault in plan if fault.at < self.work_ends]
        try:
            self._run(injector, watch, chosen, plan)
        except Stuck as error:
            self.model.wrong(str(error))
        return Result(
            self.seed, self.variant, watch.problems + self.model.problems, world.trace.checksum,
            world.faults, world.situations, self.model.requests, plan,
            [one.name for one in cluster.clients],
            world.trace.lines, world.trace.details, world.now - START, world.steps,
        )  # fmt: skip

    def _run(
        self,
        injector: Injector,
        watch: RouteWatch,
        chosen: dict[str, workloads.Workload],
        plan: list[Fault],
    ) -> None:
        world, cluster = self.world, self.cluster
        cluster.start()
        watch.start()
        world.run(WORK_BEGINS)
        wanted = self.variant.clients
        if wanted is not None:
            self.model.leave_out_but(wanted)
        for name, workload in chosen.items():
            if wanted is None or name in wanted:
                cluster.add_client(name, self._main(workload)).start()
        workloads.watch_offsets(self.context)
        workloads.watch_stops(self.context)
        self.pairs.watch()
        if cluster.snodes:
            snodes.watch(self.context)
        if self.set is not None:
            self.set.watch()
        injector.schedule(plan)
        world.run(min(FAULTS_END, self.work_ends) + 0.001)
        injector.end_all()
        world.tell("scenario", "all faults are over")
        world.run(self.work_ends)
        world.tell("scenario", "the clients start nothing new")
        self._settle()
        self._end_pairs()
        self._end_set()
        watch.stop()

    def _end_pairs(self) -> None:
        """Slaves have their masters' messages; masters that were not lost yet are lost now."""
        world, problems = self.world, self.model.problems
        left = [pair for pair in self.pairs.all if not pair.is_lost]
        if not problems:
            self.pairs.check()
        if problems or not left or self.world.now < self.work_ends:
            return
        world.run(world.now + COPIES_SECONDS)
        for pair in left:
            world.met("loss of a master after the work")
            world.injected("loss of a master")
            world.tell("scenario", f"{pair.master.name} is destroyed, with its disk")
            promote = self.pairs.destroy(pair.master)
            world.run(world.now + _PROMOTED)
            promote()
        self._settle()

    def _end_set(self) -> None:
        """All members have the same log; the loss of the master then loses nothing."""
        if self.set is None or self.model.problems:
            return
        self.set.check()
        if not self.model.problems and self.world.now >= self.work_ends:
            self.world.run(self.world.now + COPIES_SECONDS)
            if self.set.lose_master():
                self._settle()

    def _main(self, workload: workloads.Workload) -> Callable[[], Coroutine[Any, Any, None]]:
        async def main() -> None:
            await workload(self.context)

        return main

    def _loses(self, target: Target, number: int) -> None:
        """Tell the model what a broker may have lost by the fault of this number."""
        if self.flush != "ASYNC_FLUSH":
            self.pairs.lost_unshown(target)
            return
        if self.set is not None:
            self.set.lost_power(target)
            return
        now, is_well = self.world.now, self._injector.is_well(target, number, _WELL_AGAIN)
        unflushed = _UNFLUSHED_SECONDS if is_well and _is_up(target) else _WITH_TROUBLE
        if target in self.cluster.brokers:
            self.model.may_be_lost(target.name, now - unflushed, now)
        self.pairs.lost_power(target, unflushed)

    def _rots(self, target: Target, bodies: list[bytes]) -> None:
        """Tell the model that the next recovery may drop the log from here on."""
        numbers = [number_in(body) for body in bodies]
        sent = [self.model.sent[number] for number in numbers if number in self.model.sent]
        since = min([self.world.now, *(one.at for one in sent)])
        self.model.rots(target.name, since)

    def _settle(self) -> None:
        """Wait until everything due has happened, within a limit."""
        world, problems = self.world, self.model.problems
        until = world.now + SETTLES
        world.run(world.now + 1.0)
        for number in range(1, 1000):
            before = len(problems)
            self._look(number)
            if len(problems) == before or world.now >= until:
                return
            del problems[before:]
            world.run(world.now + _LOOK_AGAIN)

    def _look(self, number: int) -> None:
        """Let the workloads compare the stored messages with the model."""
        outcome: list[BaseException | None] = []

        async def look() -> None:
            try:
                await workloads.look(self.context)
            except Exception as error:
                outcome.append(error)
            else:
                outcome.append(None)

        reader = self.cluster.add_client(f"reader-{number}", look)
        reader.start()
        self.world.run(self.world.now + _LOOK_SECONDS, lambda: bool(outcome))
        if not outcome:
            self.model.wrong(f"what is stored cannot be read within {_LOOK_SECONDS:g} s")
        elif outcome[0] is not None:
            self.model.wrong(f"what is stored cannot be read: {outcome[0]!r}")
        assert reader.process is not None
        if reader.process.is_alive:
            reader.process.end()
        self.cluster.clients.remove(reader)
