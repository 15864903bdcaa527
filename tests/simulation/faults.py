"""Faults: kinds, times and durations, drawn from the seed of a scenario.

Each fault of a plan has its own random stream, derived from the seed and its number. So a plan
without some of its faults is otherwise the same, which reduction needs.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Protocol, TypeVar

from tests.simulation.cluster import Cluster
from tests.simulation.datagrams import DatagramFaults
from tests.simulation.disk import Faults as DiskFaults
from tests.simulation.world import Machine, Process, World

T = TypeVar("T")

# Duration of a fault in seconds, on average.
_LENGTHS = (0.05, 0.5, 2.0, 8.0)


class Target(Protocol):
    """A daemon or client on its own machine that can be started and ended."""

    @property
    def name(self) -> str: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def process(self) -> Process | None: ...
    def start(self) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def lose_power(self) -> None: ...


@dataclass(frozen=True)
class Fault:
    """Starts at a time and is over ``seconds`` later. ``number`` is its place in the plan."""

    at: float
    seconds: float
    kind: str
    target: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} of {self.target}"


@dataclass(frozen=True)
class Strike:
    """A fault that starts now, with its context."""

    injector: "Injector"
    fault: Fault
    target: Target
    chance: Random

    @property
    def world(self) -> World:
        return self.injector.world

    @property
    def machine(self) -> Machine:
        return self.target.machine


End = Callable[[], None]
Begin = Callable[[Strike], End | None]


@dataclass(frozen=True)
class Kind:
    """A kind of fault. ``story`` describes in one line the effect on {it}."""

    name: str
    begin: Begin
    story: str
    targets: str  # "daemons", "brokers" or "all"
    is_drawn: bool = True  # False: only if a scenario asks for it


KINDS: dict[str, Kind] = {}


def kind(targets: str = "daemons", *, is_drawn: bool = True) -> Callable[[Begin], Begin]:
    """Register a function that starts a fault and returns its end; its docstring is the story."""

    def add(begin: Begin) -> Begin:
        name = begin.__name__.replace("_", " ")
        story = (begin.__doc__ or "").strip().rstrip(".")
        KINDS[name] = Kind(name, begin, story, targets, is_drawn)
        return begin

    return add


def plan(
    world: World, cluster: Cluster, begin: float, end: float, count: int, clients: list[str],
    names: Collection[str] = (),
) -> list[Fault]:  # fmt: skip
    """Faults between two moments. ``names``: the kinds; empty: all."""
    of = {
        "daemons": [one.name for one in cluster.daemons],
        "brokers": [one.name for one in cluster.brokers],
        "all": [one.name for one in cluster.daemons] + clients,
    }
    kinds = sorted(names or (name for name, one in KINDS.items() if one.is_drawn))
    faults = []
    for number in range(1, count + 1):
        chance = world.stream(f"plan of fault {number}", is_noisy=False)
        drawn = KINDS[chance.choice(kinds)]
        at = chance.uniform(begin, end)
        seconds = min(chance.choice(_LENGTHS) * chance.uniform(0.5, 1.5), end - at)
        target = chance.choice(of[drawn.targets])
        faults.append(Fault(at, seconds, drawn.name, target, number))
    return sorted(faults, key=lambda fault: fault.at)


class Overlays:
    """The current faults of disks and networks; one machine may have many at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._disks: dict[Machine, dict[int, DiskFaults]] = {}
        self._delays: dict[Machine, dict[int, tuple[float, float]]] = {}
        self._datagrams: dict[Machine, dict[int, DatagramFaults]] = {}

    def disk(self, strike: Strike, faults: DiskFaults) -> End:
        active = self._disks.setdefault(strike.machine, {})
        active[strike.fault.number] = faults
        self._set_disk(strike.machine, active)

        def over() -> None:
            del active[strike.fault.number]
            self._set_disk(strike.machine, active)

        return over

    def _set_disk(self, machine: Machine, active: dict[int, DiskFaults]) -> None:
        disk, all_of = machine.disk, list(active.values())
        usual = DiskFaults()

        def fails(name: str, path: str) -> int:
            found = (one.fails(name, path) for one in all_of if one.fails is not None)
            return next((number for number in found if number), 0)

        disk.faults = DiskFaults(
            fails=fails if all_of else usual.fails,
            is_full=any(one.is_full for one in all_of),
            sync_seconds=max([usual.sync_seconds, *(one.sync_seconds for one in all_of)]),
            writes_short=max([0.0, *(one.writes_short for one in all_of)]),
        )

    def delay(self, strike: Strike, seconds: tuple[float, float]) -> End:
        active = self._delays.setdefault(strike.machine, {})
        return _over(strike, active, seconds, self._world.network.delays)

    def datagrams(self, strike: Strike, faults: DatagramFaults) -> End:
        active = self._datagrams.setdefault(strike.machine, {})
        return _over(strike, active, faults, self._world.network.datagrams_of)

    def has_disk_trouble(self, machine: Machine) -> bool:
        return bool(self._disks.get(machine))


def _over(strike: Strike, active: dict[int, T], value: T, shown: dict[str, T]) -> End:
    """The newest active one counts."""
    address = strike.machine.address
    active[strike.fault.number] = shown[address] = value

    def over() -> None:
        del active[strike.fault.number]
        if active:
            shown[address] = list(active.values())[-1]
        else:
            del shown[address]

    return over


class Injector:
    """Injects faults.

    ``loses`` is called with a target and the number of the fault when unsynced data may be lost;
    ``rots`` when a record of its log has changed, with the bodies from there on; ``destroys``
    destroys a master, and returns a function that replaces it.
    """

    def __init__(
        self,
        cluster: Cluster,
        loses: Callable[[Target, int], None],
        rots: Callable[[Target, list[bytes]], None] = lambda *_: None,
        destroys: Callable[[Target], End] = lambda _: lambda: None,
    ) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self.loses = loses
        self.rots = rots
        self.destroys = destroys
        self.overlays = Overlays(self.world)
        self._ends: dict[int, End] = {}
        self._active: dict[int, Fault] = {}
        self._last: dict[str, float] = {}  # when the last fault of a target was over

    @property
    def targets(self) -> dict[str, Target]:
        found: list[Target] = [*self.cluster.daemons, *self.cluster.clients]
        return {one.name: one for one in found}

    def schedule(self, faults: list[Fault]) -> None:
        for fault in faults:
            self.world.at(fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def _begin(self, fault: Fault) -> None:
        target = self.targets.get(fault.target)
        if target is None:  # a client that was left out
            return
        self._active[fault.number] = fault
        kind = KINDS[fault.kind]
        story = kind.story.replace("{it}", fault.target)
        self.world.tell(
            f"FAULT {fault.number}", f"{fault.kind}, for {fault.seconds:.3f} s: {story}"
        )
        self.world.injected(fault.kind)
        chance = self.world.stream(f"fault {fault.number}", is_noisy=False)
        end = kind.begin(Strike(self, fault, target, chance))
        if end is None:
            self._was_active(fault.number)
        else:
            self._ends[fault.number] = end
            self.world.at(fault.at + fault.seconds, lambda: self._over(fault.number))

    def _over(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            self.world.tell(f"FAULT {number}", "is over")
            end()
            self._was_active(number)

    def _was_active(self, number: int) -> None:
        self._last[self._active.pop(number).target] = self.world.now

    def is_well(self, target: Target, but: int, seconds: float) -> bool:
        """Whether a target had no fault for so long, except the one with a number."""
        # The fault with that number counts once it lasts.
        now = self.world.now
        others = (one for one in self._active.values() if one.number != but or one.at < now)
        is_free = not any(one.target == target.name for one in others)
        return is_free and self.world.now - self._last.get(target.name, -inf) >= seconds

    def end_all(self) -> None:
        """Repair everything now."""
        for number in list(self._ends):
            self._over(number)
        for target in self.targets.values():
            back(target)


def back(target: Target) -> None:
    """Give it power and start it."""
    if target.process is not None:
        target.process.operations_left = 0
    if not target.machine.has_power:
        target.machine.boot()
    target.start()
