"""A scenario: a cluster, what clients do with it, what goes wrong, and whether all held."""

import gc
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.simulation import faults, seams, workloads
from tests.simulation.cluster import Cluster, Daemon
from tests.simulation.faults import Fault, Injector
from tests.simulation.model import Model, Place
from tests.simulation.world import START, Stuck, World

FAULTS_BEGIN = START + 3.0
FAULTS_END = START + 45.0
WORK_ENDS = START + 60.0
# After the last fault everything is delivered within so many seconds.
SETTLES = 60.0
TOPIC = "Orders"


@dataclass
class Result:
    """What became of a seed."""

    seed: int
    problems: list[str]
    checksum: int
    faults: dict[str, int]
    requests: int
    plan: list[Fault]
    lines: list[str] = field(repr=False, default_factory=list)
    seconds: float = 0.0  # simulated


class LogToTrace(logging.Handler):
    """Warnings and errors of the daemons belong to the story."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = self._world.current
        if process is not None:
            text = record.getMessage()
            self._world.tell(process.name, f"{record.levelname.lower()}: {text}")


def run(seed: int, choose: Callable[[list[Fault]], list[Fault]] = lambda plan: plan) -> Result:
    """Run the scenario of a seed. ``choose`` may leave out faults of its plan."""
    sys.unraisablehook = lambda _: None  # of coroutines that were in the middle of something
    gc.collect()
    gc.disable()  # what is collected and when is not up to the seed
    world = World(seed)
    seams.use(world)
    handler = LogToTrace(world)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        return _Scenario(world, seed).run(choose)
    finally:
        root.removeHandler(handler)
        seams.use(None)
        gc.enable()


class _Scenario:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.random = Random(f"{seed}/scenario")
        self.model = Model()
        self.flush = self.random.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        self.cluster = Cluster(world, {"flushDiskType": self.flush})
        for _ in range(self.random.randint(1, 2)):
            self.cluster.add_name_server()
        for _ in range(self.random.randint(1, 2)):
            self.cluster.add_broker()

    def run(self, choose: Callable[[list[Fault]], list[Fault]]) -> Result:
        world, cluster = self.world, self.cluster
        injector = Injector(cluster, self._lost_power)
        count = self.random.randint(3, 9)
        plan = faults.plan(self.random, cluster, FAULTS_BEGIN, FAULTS_END, count)
        chosen = choose(plan)
        context = workloads.Context(cluster, self.model, self.random, WORK_ENDS)
        cluster.start()
        try:
            world.run(START + 1.0)
            for name, workload in (
                ("producer", workloads.produce(TOPIC, 0.2)),
                ("consumer-1", workloads.consume(TOPIC, "billing")),
                ("consumer-2", workloads.consume(TOPIC, "billing")),
            ):
                workloads.start(context, cluster.add_client(name), name, workload)
            injector.schedule(chosen)
            world.run(FAULTS_END + 0.001)
            injector.end_all()
            world.tell("scenario", "all faults are over")
            world.run(WORK_ENDS)
            self._settle(context)
        except Stuck as error:
            self.model.wrong(str(error))
        return Result(
            self.seed, self.model.problems, world.trace.checksum, world.faults,
            self.model.requests, chosen, world.trace.lines, world.now - START,
        )  # fmt: skip

    def _lost_power(self, daemon: Daemon) -> None:
        if self.flush == "ASYNC_FLUSH" and daemon in self.cluster.brokers:
            # flushIntervalCommitLog is half a second, and a disk may be slow.
            self.model.may_be_lost(daemon.name, self.world.now - 10.0, self.world.now)

    def _settle(self, context: workloads.Context) -> None:
        """Everything that is due happens within a bound; then it is looked at."""
        world = self.world
        found: dict[Place, int] = {}
        outcome: list[BaseException | None] = []

        async def read() -> None:
            try:
                found.update(await workloads.read_queues(context, TOPIC))
            except Exception as error:
                outcome.append(error)
            else:
                outcome.append(None)

        world.run(WORK_ENDS + SETTLES)
        self.cluster.add_client("reader").start("reader", read)
        world.run(world.now + 30.0, lambda: bool(outcome))
        if not outcome or outcome[0] is not None:
            self.model.wrong(f"the queues cannot be read: {outcome}")
            return
        self.model.check_stored(found)
        self.model.check_delivered("billing", found, once=False)
