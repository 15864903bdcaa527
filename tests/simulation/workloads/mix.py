"""The mix of workloads of a seed: some always run, others in some seeds only."""

import asyncio
import random

from mq.client import Consumer, PushConsumer
from tests.simulation.cluster import Cluster
from tests.simulation.model import Group, Model, Pops
from tests.simulation.workloads import (
    administering,
    consuming,
    passing,
    popping,
    producing,
    transacting,
)
from tests.simulation.workloads.context import Context, Workload

# How long members of a group that are not its first stay, each time that they come.
_STAYS = {"concurrent": (5.0, 1000.0, 1000.0), "ordered": (1.5, 5.0, 1000.0)}
# Of a cluster with snodes: the share of producers and groups that go through them, and of members
# of these that are pushed to.
_THROUGH_SNODES, _PUSHED = 0.8, 0.8
_WAYS = ("single", "single", "batch", "at once", "oneway")
# So short that retries finish within a simulation.
_SETTINGS = {
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in (*producing.LEVELS, *[1, 2, 3] * 4)),
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "2000",
    "flushConsumerOffsetInterval": "2000",
    "defaultTopicQueueNums": "4",
    "mappedFileSizeTimerLog": "65536",
    "cleanFileForciblyEnable": "false",  # a disk that is full for a moment loses nothing
}


def choose(given: random.Random, cluster: Cluster, model: Model) -> dict[str, Workload]:
    """The clients of a cluster that has not started by their names, and what each does.

    Adds to the settings of its brokers.
    """
    cluster.settings.update(_SETTINGS)
    mix = _Mix(given, model, cluster)
    mix.orders()
    extras = [mix.steps, mix.waits, mix.payments, mix.pops, mix.news, mix.more_orders]
    if given.random() < 0.15:
        cluster.settings["fileReservedTime"] = "0"
        model.keeps = False
        extras = [mix.news, mix.more_orders]
    for extra in given.sample(extras, given.randint(1, 2)):
        extra()
    for extra in (mix.changes, mix.looks, mix.passes):
        if given.random() < 0.4:
            extra()
    return mix.parts


class _Mix:
    def __init__(self, given: random.Random, model: Model, cluster: Cluster) -> None:
        self._random = given
        self._cluster = cluster
        self._model = model
        self.parts: dict[str, Workload] = {}

    def orders(self) -> None:
        """Several members share a topic; they come and go."""
        self._produce("Orders", 1.4, _WAYS)
        self._group("billing", "Orders", self._random.choice((1, 1, 2, 3)))
        # A reset asks brokers, which do not know members that connect through snodes.
        if self._random.random() < 0.2 and not self._cluster.snodes:
            group = self._model.groups["billing"]
            self.parts["resetter"] = administering.reset(group, 12.0)

    def more_orders(self) -> None:
        self._produce("Orders", 2.0, ("single", "at once"), "producer-2")
        self._group("stock", "Orders", 1, tags=("paid", "sent"))

    def steps(self) -> None:
        """A group in order."""
        self._produce("Steps", 1.6, ("single", "batch"))
        self._group("walkers", "Steps", self._random.choice((1, 2, 3)), mode="ordered")

    def waits(self) -> None:
        self._produce("Later", 1.4, ("level", "timer"))
        self._group("late", "Later", 1)

    def payments(self) -> None:
        self.parts["payer"] = transacting.transact("Paid", 1.5)
        if self._random.random() < 0.3:
            self.parts["payer-2"] = transacting.transact("Paid", 2.5)
        self._group("books", "Paid", 1)

    def pops(self) -> None:
        self._produce("Popped", 1.4, ("single",), retries=0)
        pops = self._model.pops["poppers"] = Pops("poppers", "Popped", self._model.wrong)
        for number in range(self._random.randint(1, 2)):
            member = f"popper-{number}"
            pops.members.append(member)
            self.parts[member] = self._late(popping.pop(pops))

    def news(self) -> None:
        """Each member gets all."""
        self._produce("News", 1.8, ("single",))
        for number in range(2):
            name = f"listener-{number}"
            group = Group("readers", "News", self._model.wrong, mode="broadcasting")
            group.members.append(name)
            self._model.groups[name] = group
            self.parts[name] = self._late(consuming.consume(group, name, is_failing=False))

    def changes(self) -> None:
        self.parts["changer"] = administering.change(2.0)

    def passes(self) -> None:
        self.parts["passer"] = passing.come_and_go()

    def looks(self) -> None:
        self.parts["watcher"] = administering.watch(3.0)

    def _produce(
        self,
        topic: str,
        pause: float,
        ways: tuple[str, ...],
        name: str = "",
        retries: int = 2,
    ) -> None:
        snode = bool(self._cluster.snodes) and self._random.random() < _THROUGH_SNODES
        workload = producing.produce(topic, pause, ways, retries, snode=snode)
        self.parts[name or f"producer-of-{topic}"] = workload

    def _group(
        self,
        name: str,
        topic: str,
        members: int,
        *,
        tags: tuple[str, ...] = (),
        mode: str = "concurrent",
    ) -> None:
        group = self._model.groups[name] = Group(
            name, topic, self._model.wrong, tags=tags, mode=mode, is_alone=members == 1
        )
        group.is_orderly = lambda: self._cluster.is_orderly
        group.locks_since = self._locks_since
        snode = bool(self._cluster.snodes) and self._random.random() < _THROUGH_SNODES
        for number in range(members):
            member = f"{name}-{number}"
            group.members.append(member)
            stays = self._random.choice(_STAYS[mode]) if number else 1000.0
            pushed = snode and self._random.random() < _PUSHED
            workload = consuming.consume(
                group, member, stays, snode=snode, kind=PushConsumer if pushed else Consumer
            )
            self.parts[member] = workload if members == 1 else self._late(workload)

    def _locks_since(self, name: str) -> float:
        """When a broker last lost its queue locks."""
        broker = next(one for one in self._cluster.brokers if one.name == name)
        return float(broker.locks_since)

    def _late(self, workload: Workload) -> Workload:
        """It may come some time after the others."""
        comes = self._random.choice((0.0, 0.0, self._random.uniform(0.0, 20.0)))

        async def run(context: Context) -> None:
            await asyncio.sleep(comes)
            await workload(context)

        return run
