"""Faults: what goes wrong in a scenario, when, and for how long, drawn from its seed."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation.cluster import Cluster, Daemon
from tests.simulation.world import Process, World


@dataclass(frozen=True)
class Fault:
    """Begins at a time, and is over ``seconds`` later. ``number`` is its place in the plan."""

    at: float
    seconds: float
    kind: str
    target: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.kind} of {self.target} at {self.at:.3f} for {self.seconds:.3f} s"


Begin = Callable[["Injector", Daemon, Fault], Callable[[], None]]
KINDS: dict[str, Begin] = {}


def kind(begin: Begin) -> Begin:
    """A function that lets a fault begin, and returns what ends it."""
    KINDS[begin.__name__.replace("_", " ").strip()] = begin
    return begin


def plan(random: Random, cluster: Cluster, begin: float, end: float, count: int) -> list[Fault]:
    """So many faults between two moments."""
    names = sorted(KINDS)
    faults = []
    for number in range(count):
        daemon = random.choice(cluster.daemons)
        at = random.uniform(begin, end)
        seconds = min(random.choice((0.05, 0.5, 2.0, 8.0)) * random.uniform(0.5, 1.5), end - at)
        faults.append(Fault(at, seconds, random.choice(names), daemon.name, number))
    return sorted(faults, key=lambda fault: fault.at)


class Injector:
    """Lets faults happen."""

    def __init__(self, cluster: Cluster, on_power_cut: Callable[[Daemon], None]) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self.on_power_cut = on_power_cut
        self._by_name = {daemon.name: daemon for daemon in cluster.daemons}
        self._ends: list[Callable[[], None]] = []

    def schedule(self, faults: list[Fault]) -> None:
        for fault in faults:
            self.world.at(fault.at, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def _begin(self, fault: Fault) -> None:
        daemon = self._by_name[fault.target]
        self.world.tell("fault", f"{fault.kind} of {fault.target} for {fault.seconds:.3f} s")
        self.world.injected(fault.kind)
        end = KINDS[fault.kind](self, daemon, fault)
        self._ends.append(end)

        def over() -> None:
            if end in self._ends:
                self._ends.remove(end)
                self.world.tell("fault", f"{fault.kind} of {fault.target} is over")
                end()

        self.world.at(fault.at + fault.seconds, over)

    def end_all(self) -> None:
        """Whatever is wrong is mended now."""
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        self.world.network.heal()
        for daemon in self.cluster.daemons:
            if not daemon.machine.has_power:
                daemon.machine.boot()
            daemon.start()


def _back(daemon: Daemon) -> Callable[[], None]:
    def back() -> None:
        if daemon.process is not None:
            daemon.process.operations_left = 0
        if not daemon.machine.has_power:
            daemon.machine.boot()
        daemon.start()

    return back


@kind
def kill(_: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    daemon.kill()
    return _back(daemon)


@kind
def kill_at_a_file(injector: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    """Killed in the middle of what it does with files."""
    process = daemon.process
    if process is not None and process.is_alive:
        process.operations_left = injector.world.random.randint(1, 40)
        process.on_last_operation = daemon.kill
    return _back(daemon)


@kind
def terminate(_: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    daemon.terminate()
    return _back(daemon)


@kind
def power_cut(injector: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    injector.on_power_cut(daemon)
    daemon.lose_power()
    return _back(daemon)


@kind
def power_cut_at_a_file(injector: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    process = daemon.process

    def cut() -> None:
        injector.on_power_cut(daemon)
        daemon.lose_power()

    if process is not None and process.is_alive:
        process.operations_left = injector.world.random.randint(1, 40)
        process.on_last_operation = cut
    return _back(daemon)


@kind
def stop(_: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    process = daemon.process
    if process is not None:
        process.stop()

    def back() -> None:
        if process is not None:
            process.go_on()

    return back


@kind
def partition(injector: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    return _cut(injector, daemon, both=True)


@kind
def one_way_partition(injector: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    return _cut(injector, daemon, both=False)


def _cut(injector: Injector, daemon: Daemon, *, both: bool) -> Callable[[], None]:
    network, random = injector.world.network, injector.world.random
    for machine in injector.world.machines:
        if machine is not daemon.machine and random.random() < 0.7:
            network.cut(daemon.address, machine.address, both=both)
    return network.heal


@kind
def resets(injector: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    injector.world.network.reset_some(daemon.address)
    return lambda: None


@kind
def full_disk(_: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    daemon.machine.disk.faults.is_full = True

    def over() -> None:
        daemon.machine.disk.faults.is_full = False

    return over


@kind
def slow_disk(_: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    faults = daemon.machine.disk.faults
    usual, faults.sync_seconds = faults.sync_seconds, (0.05, 1.0)

    def over() -> None:
        faults.sync_seconds = usual

    return over


@kind
def clock_jump(injector: Injector, daemon: Daemon, fault: Fault) -> Callable[[], None]:
    daemon.machine.wall_offset += injector.world.random.choice((-30.0, -2.0, 2.0, 30.0))
    return lambda: None


def failing_syncs(process: Process) -> None:
    """Reserved for scenarios of one broker: fsync raises EIO from now on."""
    process.machine.disk.faults.fails = lambda name, path: errno.EIO if "sync" in name else 0
