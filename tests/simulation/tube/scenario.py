"""A scenario with TubeMQ: masters, brokers, clients, what goes wrong, and whether all held."""

from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation import faults
from tests.simulation.cluster import Daemon
from tests.simulation.etcd import Etcd
from tests.simulation.faults import Fault, Injector, Target
from tests.simulation.tube import administering, workloads
from tests.simulation.tube.administering import Unanswered
from tests.simulation.tube.cluster import TubeCluster
from tests.simulation.tube.model import Group, Model
from tests.simulation.tube.watch import Watch
from tests.simulation.world import START, Stuck, World

# Which seeds have it: none that has pairs, a controlled set or snodes.
EVERY, _FIRST = 9, 4
WORK_BEGINS = START + 1.0
FAULTS_BEGIN = START + 4.0
FAULTS_END = START + 45.0
WORK_ENDS = START + 60.0
FAULTS = (5, 10)
CALM, STOPS = 0.1, 0.1  # as of other seeds
# After the last work all is delivered, and each partition assigned, within so many seconds.
SETTLES = 60.0
_LOOK_SECONDS, _LOOK_AGAIN = 15.0, 3.0
# Behind a power cut with flush mode `os`: a checkpoint each ten seconds flushes what is there.
_UNFLUSHED = 30.0
#: After these a broker may not save in time.
_TROUBLES = ("disk", "writes", "syncs", "reads", "stop", "amid", "at a file", "clock")


def has_tube(seed: int) -> bool:
    """Whether the cluster of a seed is TubeMQ's."""
    return seed % EVERY == _FIRST


class TubeScenario:
    """The events of a seed that has TubeMQ."""

    def __init__(self, world: World, work_seconds: float) -> None:
        self.world = world
        self.random = world.stream("scenario", is_noisy=False)
        self.model = Model(lambda: world.now)
        self.cluster = TubeCluster(world)
        self.flush = self.random.choice(("sync", "sync", "os"))
        self.work_ends = START + work_seconds
        self.context = workloads.Context(self.cluster, self.model, self.work_ends)
        self._add_servers()

    def _add_servers(self) -> None:
        random, endpoints = self.random, list[Daemon]()
        count = random.choice((1, 1, 2))
        if count > 1:
            kept = Etcd()
            endpoints = [self.cluster.add_etcd(kept, n) for n in range(1, random.choice((2, 3)))]
            self.world.met("TubeMQ masters that etcd elects")
        for _ in range(count):
            self.cluster.add_master(endpoints)
        for _ in range(random.choice((1, 2))):
            self.cluster.add_tube_broker(self.flush)
        self.world.met(f"TubeMQ with flush mode {self.flush}")

    def draw(self) -> tuple[dict[str, workloads.Workload], list[Fault]]:
        """The clients by their names, and the faults."""
        chosen = self._clients()
        share = self.random.random()
        count = 0 if share < CALM else self.random.randint(*FAULTS)
        kinds = ("restart", "terminate") if share < CALM + STOPS else ()
        names = list(chosen)
        plan = faults.plan(self.world, self.cluster, FAULTS_BEGIN, FAULTS_END, count, names, kinds)
        return chosen, plan

    def _clients(self) -> dict[str, workloads.Workload]:
        random = self.random
        topics = {"Orders": random.randint(1, 4), "Bills": random.randint(1, 2)}
        chosen: dict[str, workloads.Workload] = {
            "administrator": administering.administer(topics, random.choice((6.0, 15.0)))
        }
        for number in range(1, random.randint(1, 2) + 1):
            pause = random.choice((0.5, 1.0))
            chosen[f"producer-{number}"] = workloads.produce(tuple(topics), pause)
        self._group(chosen, Group("billing", "Orders"), random.randint(1, 3))
        if random.random() < 0.5:
            self._group(chosen, Group("archive", "Bills", ("paid",)), random.randint(1, 2))
        if random.random() < 0.5:
            group = self.model.groups["balanced"] = Group("balanced", "Orders")
            members = random.randint(1, 2)
            for number in range(members):
                name = f"balanced-{number}"
                chosen[name] = workloads.balance(group, name, (members, number))
        return chosen

    def _group(self, chosen: dict[str, workloads.Workload], group: Group, members: int) -> None:
        self.model.groups[group.name] = group
        way = self.random.choice(("confirm", "confirm", "iterate", "locally"))
        for number in range(members):
            name = f"{group.name}-{number}"
            stays = self.random.choice((8.0, 1000.0)) if number else 1000.0
            chosen[name] = workloads.consume(group, name, stays, way)

    # running ----------------------------------------------------------------------------------

    def run(
        self, stay: frozenset[int] | None, clients: frozenset[str] | None
    ) -> tuple[list[Fault], list[str]]:
        """With these faults and clients, or all; returns the plan and what did not hold."""
        chosen, plan = self.draw()
        plan = [one for one in plan if stay is None or one.number in stay]
        plan = [one for one in plan if one.at < self.work_ends]
        if clients is not None:
            chosen = {name: one for name, one in chosen.items() if name in clients}
            gone = [
                name
                for name in self.model.groups
                if not any(one.rpartition("-")[0] == name for one in chosen)
            ]
            for name in gone:
                del self.model.groups[name]
        try:
            self._run(chosen, plan)
        except Stuck as error:
            self.model.wrong(str(error))
        return plan, self.model.problems

    def _run(self, chosen: dict[str, workloads.Workload], plan: list[Fault]) -> None:
        world, cluster = self.world, self.cluster
        watch = self.watch = Watch(self.context)
        injector = Injector(cluster, self._loses)
        cluster.start()
        world.run(WORK_BEGINS)
        for name, workload in chosen.items():
            cluster.add_client(name, self._main(workload)).start()
        watch.start()
        for fault in plan:
            if any(word in fault.kind for word in _TROUBLES):
                ends = [fault.at + step * fault.seconds / 8 for step in range(9)]
                watch.troubles.setdefault(fault.target, []).extend(ends)
        injector.schedule(plan)
        world.run(min(FAULTS_END, self.work_ends) + 0.001)
        injector.end_all()
        self._restart_stopped()
        world.tell("scenario", "all faults are over")
        world.run(self.work_ends)
        world.tell("scenario", "the clients have nothing new to do")
        self._settle()

    def _restart_stopped(self) -> None:
        """Do what an operator does with brokers that serve no more since their disk failed."""
        for broker in self.cluster.brokers:
            serving = getattr(broker.app, "serving", None)
            if serving is not None and (
                serving.reads.is_stopped
                or serving.writes.is_stopped
                or any(store.is_broken for store in serving.stores)
            ):
                self.world.tell("scenario", f"{broker.name} has to be restarted")
                broker.terminate()
                broker.start()

    def _main(self, workload: workloads.Workload) -> Callable[[], Coroutine[Any, Any, None]]:
        async def main() -> None:
            await workload(self.context)

        return main

    def _loses(self, target: Target, _: int) -> None:
        """A power cut: with flush mode `os` what was not flushed may be gone."""
        if self.flush == "os":
            for number, broker in enumerate(self.cluster.brokers, 1):
                if broker is target:
                    self.model.may_be_lost(number, self.world.now - _UNFLUSHED, self.world.now)
                    self.watch.lost_power(broker)

    # in the end -------------------------------------------------------------------------------

    def _settle(self) -> None:
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
        self.watch.look()
        self.model.check(self.watch.content())
        self._check_hands()
        outcome: list[str] = []

        async def ask() -> None:
            try:
                await administering.check(self.context)
            except Unanswered:
                outcome.append("no master answers an administrator")
            else:
                outcome.append("")

        reader = self.cluster.add_client(f"reader-{number}", ask)
        reader.start()
        self.world.run(self.world.now + _LOOK_SECONDS, lambda: bool(outcome))
        for text in outcome or ["no master answers an administrator in time"]:
            if text:
                self.model.wrong(text)
        self.cluster.clients.remove(reader)

    def _check_hands(self) -> None:
        """Each partition is in the hands of one member of each group, and its broker says so."""
        for group in self.model.groups.values():
            keys = {
                f"{number}:{topic}:{partition}"
                for topic, partitions in self.model.partitions.items()
                if topic == group.topic
                for number in range(1, len(self.cluster.brokers) + 1)
                for partition in range(partitions)
            }
            hands: dict[str, list[str]] = {}
            for name, (its, consumer) in self.context.members.items():
                if its is group:
                    for key in consumer.current_offsets():
                        hands.setdefault(key, []).append(name)
            for key in sorted(keys | set(hands)):
                if len(holders := hands.get(key, [])) != 1:
                    who = " and ".join(holders) or "nobody"
                    self.model.wrong(f"{key} is in the hands of {who} of {group.name}")
