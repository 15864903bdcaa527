"""The faults of each round, their targets, times and durations: chosen by a seeded random
generator.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.system.faults.cluster import Cluster
from tests.system.faults.doors import After, Cut, Door

SHORTEST, LONGEST = 0.5, 6.0
_FROM_CLIENTS = "from clients"


class Kind(Enum):
    KILL = "killed"
    TERMINATE = "ended"
    STAND_STILL = "stands still"
    CUT_OFF = "cut off"


@dataclass(frozen=True)
class Fault:
    """`delay` seconds after the start of its round, `target` fails for `seconds`."""

    kind: Kind
    target: str
    delay: float
    seconds: float
    what: str = ""  # what is cut off
    doors: tuple[Door, ...] = ()
    cut: Cut = Cut.ALL
    after: After = After.GOES_ON

    def __str__(self) -> str:
        text = f"{self.target} {self.kind.value} for {self.seconds:.1f} s"
        if self.kind is Kind.CUT_OFF:
            text += f" ({self.what}: {self.cut.value}; what was connected {self.after.value})"
        return text


@dataclass(frozen=True)
class Round:
    """The events of a round; `created` is the broker that creates a topic, and the time of that."""

    faults: Sequence[Fault]
    created: tuple[str, float] | None


class Plan:
    """The rounds for a cluster, the same for the same seed."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)

    def next(self) -> Round:
        choose = self._random
        first = self._fault(0.0, None)
        faults = [first]
        if choose.random() < 0.4:
            # At the same time, or during the recovery from the first fault.
            delay = choose.choice([0.0, choose.uniform(0.0, first.seconds), first.seconds + 0.1])
            faults.append(self._fault(delay, first.target))
        created = None
        if choose.random() < 0.6:
            created = choose.choice(list(self._cluster.brokers)), choose.uniform(0, first.seconds)
        return Round(faults, created)

    def _fault(self, delay: float, other: str | None) -> Fault:
        choose = self._random
        names = [*self._cluster.name_servers, *self._cluster.brokers]
        target = choose.choice([name for name in names if name != other])
        kind = choose.choice(list(Kind))
        # Many short faults: the longest is twice as long as a broker's beacons may be missing.
        seconds = SHORTEST + (LONGEST - SHORTEST) * choose.random() ** 2
        if kind is not Kind.CUT_OFF:
            return Fault(kind, target, delay, seconds)
        what, doors = self._cut(target)
        cut = choose.choice(list(Cut))
        # A daemon learns from its kernel that a name server is down, and sees this process instead
        # here: so only clients meet connections that are dead for good.
        ends = list(After) if what == _FROM_CLIENTS else [After.GOES_ON, After.ENDS]
        return Fault(kind, target, delay, seconds, what, doors, cut, choose.choice(ends))

    def _cut(self, target: str) -> tuple[str, tuple[Door, ...]]:
        cluster = self._cluster
        if target in cluster.name_servers:
            return "from everybody", tuple(cluster.name_servers[target].doors)
        links = {name: cluster.link(target, name) for name in cluster.name_servers}
        own = tuple(cluster.brokers[target].doors)
        name = self._random.choice(list(links))
        ways = [(f"from {name}", (links[name],)), ("from the name servers", tuple(links.values()))]
        if own:
            ways += [(_FROM_CLIENTS, own), ("from everybody", (*own, *links.values()))]
        return self._random.choice(ways)
