"""Tries the points of a workload, and the states that a crash may leave at each."""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from tests.simulation.children import Died, run_each
from tests.simulation.crash_points import java
from tests.simulation.crash_points.machine import Point, Run, behind_power_cut, digest, run
from tests.simulation.crash_points.model import Expectation
from tests.simulation.crash_points.store import Ledger, recover
from tests.simulation.crash_points.workloads import Crash, Workload
from tests.simulation.disk import Descriptors, Disk, Renaming
from tests.simulation.image import Image
from tests.simulation.inode import Change, Inode
from tests.simulation.world import World

Unit = tuple[int, int]  # a change's number, and the position of its sector
Found = tuple[Unit, Change | Renaming, Inode]

_AS_LONG = 6  # a start of a broker takes as long as this many of a store
# All subsets of this many units of one file, with all others kept or all lost.
_OF_A_FILE = 5
KILL = 0  # the number of a kill; power cuts have later numbers
# Real time for all starts of a point: some have a thousand.
_POINT_SECONDS = 3600.0


@dataclass(frozen=True)
class Limits:
    """The extent of a search."""

    whole: int = 8  # all subsets of so many units
    by_chance: int = 200  # subsets of more
    # Of starts with the same kinds of operations this many are crashed at each of their points.
    again: int = 0
    again_by_chance: int = 4
    most: int = 1 << 30  # subsets of a point
    every: int = 1  # one point of so many, and fewer if a start takes long
    most_failures: int = 1 << 30
    seconds: float = 0.0  # 0: no limit; otherwise points are tried in random order


@dataclass
class Failure:
    """A start that did not find what it must."""

    command: str
    problems: list[str]
    story: list[str]


@dataclass
class Summary:
    """The coverage and the failures."""

    operations: int = 0
    points: int = 0
    subsets: int = 0  # tried, including those that leave an equal disk
    starts: int = 0
    again_points: int = 0
    again_starts: int = 0
    images: int = 0  # different disks that were started from
    is_whole: bool = True  # and not stopped by a limit
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: "Summary") -> None:
        """Add the coverage of another process."""
        for name in ("points", "subsets", "starts", "again_points", "again_starts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.is_whole = self.is_whole and other.is_whole
        self.failures += other.failures


@dataclass
class _Part:
    """The results of a process at a point."""

    summary: Summary = field(default_factory=Summary)
    seen: set[tuple[object, ...]] = field(default_factory=set)
    images: set[bytes] = field(default_factory=set)
    kinds: Counter[frozenset[tuple[str, str]]] = field(default_factory=Counter)


def crashes(
    image: Image, limits: Limits, seed: str
) -> Iterator[tuple[int, frozenset[Unit] | None]]:
    """The numbers of the possible states, and the units kept in each; None for a kill, which keeps
    all.

    The numbers of a point are always the same for the same limits.
    """
    yield KILL, None
    units = units_of(image)
    chance = random.Random(seed)
    seen: set[frozenset[Unit]] = set()
    if limits.most < 1 << 30:
        chance.shuffle(units)  # the point determines the units tried alone
    for number, kept in enumerate(_subsets(units, limits, chance), KILL + 1):
        if len(seen) >= limits.most:
            return
        if kept not in seen:
            seen.add(kept)
            yield number, kept


def _subsets(
    found: list[Found], limits: Limits, chance: random.Random
) -> Iterator[frozenset[Unit]]:
    units = [unit for unit, _, _ in found]
    everything = frozenset(units)
    yield frozenset()
    yield everything
    if len(units) <= limits.whole:
        yield from _all_of(units)
        return
    for number, unit in enumerate(units):
        yield frozenset((unit,))
        yield everything - {unit}
        yield frozenset(units[:number])
    files: dict[int, list[Unit]] = {}
    for unit, item, inode in found:
        files.setdefault(0 if isinstance(item, Renaming) else inode.number, []).append(unit)
    for inside in files.values():
        if 2 <= len(inside) <= _OF_A_FILE:
            for kept in _all_of(inside):
                yield everything.difference(inside) | kept
                yield kept
    for _ in range(limits.by_chance):
        share = chance.choice((0.1, 0.5, 0.9))
        yield frozenset(unit for unit in units if chance.random() < share)


def _all_of(units: list[Unit]) -> Iterator[frozenset[Unit]]:
    for mask in range(1 << len(units)):
        yield frozenset(unit for bit, unit in enumerate(units) if mask >> bit & 1)


def units_of(image: Image) -> list[Found]:
    disk = image.disk(World("units"), Descriptors())
    return [((item.number, at), item, inode) for item, at, inode in disk.unsynced()]


class Explorer:
    """Explores one workload, each point in a process of its own, with which the memory of its
    starts goes.
    """

    def __init__(self, workload: Workload, limits: Limits) -> None:
        self.workload = workload
        self.config = workload.config
        self.limits = limits
        self.summary = Summary()
        self._began = 0.0
        self._known = _Part()  # of all points so far
        self._part = _Part()  # of this one
        self._ledger = Ledger()

    def record(self) -> Run:
        """Run the workload itself."""
        ledger, before = self._ledger, None
        if self.workload.archive is not None:
            before = java.image(self.workload.archive)
            ledger.events += java.events(self.workload.archive)
            ledger.next_number += len(ledger.events)

        async def main() -> None:
            await self.workload.main(ledger, self.config)

        recorded = run(before, main, ledger.count)
        if recorded.failure is not None:
            raise recorded.failure
        self.summary.operations = recorded.operations
        return recorded

    def explore(self, only: tuple[int, ...] = ()) -> Summary:
        """Try everything, or what ``only`` names: point, subset, and both again of that start."""
        self._began = began = time.monotonic()
        points = list(enumerate(self.record().points))
        if self.limits.seconds:
            random.Random(self.workload.name).shuffle(points)
        every = self.limits.every * (_AS_LONG if self.workload.judge else 1)
        if self.limits.every == 1:
            every = 1
        wanted = [
            point for position, point in points
            if (only[0] == point.number if only else not position % every)
        ]  # fmt: skip
        numbers = range(len(wanted))

        def work(number: int) -> _Part:
            self._part = _Part()
            if not self._is_over():
                self._from_point(wanted[number], only[1:])
            return self._part

        found = run_each(work, numbers, processes=1, at_a_time=1, seconds=_POINT_SECONDS)
        for number, part in found:
            if isinstance(part, Died):
                command = self._command([(wanted[number], KILL, None)])
                self.summary.failures.append(Failure(command, [str(part)], []))
            else:
                self._take(part)
            if not self.summary.is_whole or self._has_failed_enough():
                found.close()
                break
        self.summary.images = len(self._known.images)
        self.summary.seconds = time.monotonic() - began
        return self.summary

    def _take(self, part: _Part) -> None:
        """Add the results of a process; processes forked later know them."""
        self.summary.add(part.summary)
        self._known.seen |= part.seen
        self._known.images |= part.images
        self._known.kinds.update(part.kinds)

    def _has_failed_enough(self) -> bool:
        return len(self.summary.failures) >= self.limits.most_failures

    def _is_over(self) -> bool:
        """Whether the time is over."""
        if self.limits.seconds and time.monotonic() - self._began > self.limits.seconds:
            self._part.summary.is_whole = False
            return True
        return False

    def _from_point(self, point: Point, only: tuple[int, ...]) -> None:
        summary = self._part.summary
        summary.points += 1
        seed = f"{self.workload.name}/{point.number}"
        for number, kept in crashes(point.image, self.limits, seed):
            if only and only[0] != number:
                continue
            if self._is_over():
                return
            summary.subsets += 1
            ledger = Ledger(self._ledger.events[: point.events])
            ledger.next_number = self._ledger.next_number
            trail = [(point, number, kept)]
            lost = kept is not None
            started = self._start(trail, ledger, has_lost_power=lost)
            if started is None:
                continue
            summary.starts += 1
            kinds = self._part.kinds
            kinds[started.kinds] += 1
            alike = kinds[started.kinds] + self._known.kinds[started.kinds]
            if only[1:] or alike <= self.limits.again:
                self._again(trail, only[1:])

    def _again(
        self,
        trail: list[tuple[Point, int, frozenset[Unit] | None]],
        only: tuple[int, ...],
    ) -> None:
        """Crash at each point of a start, which is repeated."""
        ledger = Ledger(self._ledger.events[: trail[0][0].events])
        ledger.next_number = self._ledger.next_number
        lost = trail[0][2] is not None
        started = self._start(trail, ledger, has_lost_power=lost, is_for_points=True)
        assert started is not None
        limits = Limits(whole=2, by_chance=self.limits.again_by_chance)
        first, subset, kept = trail[0]
        for point in started.points:
            if only and only[0] != point.number:
                continue
            if self._is_over():
                return
            self._part.summary.again_points += 1
            seed = f"{self.workload.name}/{first.number}/{subset}/{point.number}"
            for number, kept_again in crashes(point.image, limits, seed):
                if only[1:] and only[1] != number:
                    continue
                then = Ledger(ledger.events[: point.events])
                then.next_number = ledger.next_number
                lost = kept is not None or kept_again is not None
                again = [*trail, (point, number, kept_again)]
                if self._start(again, then, has_lost_power=lost):
                    self._part.summary.again_starts += 1

    def _start(
        self,
        trail: list[tuple[Point, int, frozenset[Unit] | None]],
        ledger: Ledger,
        *,
        has_lost_power: bool,
        is_for_points: bool = False,
    ) -> Run | None:
        """Start from the state of a crash; None if an equal one is known."""
        point, _, kept = trail[-1]
        image = point.image
        if kept is not None:
            image = behind_power_cut(image, lambda item, at: (item.number, at) in kept)  # type: ignore[attr-defined]
        boots = 1 + sum(kept is not None for _, _, kept in trail)
        problems: list[str] = []
        key, main = self._check(ledger, problems, Crash(has_lost_power, trail[0][0].now))
        disk = digest(image)
        known = (disk, boots, key)
        is_known = known in self._known.seen or known in self._part.seen
        if is_known and not is_for_points:
            return None
        self._part.seen.add(known)
        self._part.images.add(disk)
        now = point.now + 5.0
        started = run(image, main, ledger.count, boot=boots, now=now, keeps_points=is_for_points)
        if started.failure is not None:
            problems.append(f"the start fails: {started.failure!r}")
        if problems and not is_for_points:
            self._part.summary.failures.append(self._failure(trail, problems, started))
        return started

    def _check(
        self, ledger: Ledger, problems: list[str], crash: Crash
    ) -> tuple[object, Callable[[], Awaitable[None]]]:
        """The expectation, for comparison, and the start that checks it."""
        if self.workload.judge is not None:
            return self.workload.judge(ledger, problems, crash)
        expected = Expectation.of(
            ledger.events, is_synced=self.workload.is_synced, has_lost_power=crash.has_lost_power
        )
        key = (
            frozenset(expected.promised),
            frozenset(expected.messages),
            frozenset(expected.deleting),
            expected.expired_before,
        )
        return key, lambda: recover(
            ledger, self.config, expected, problems, may_be_damaged=crash.has_lost_power
        )

    def _failure(
        self,
        trail: list[tuple[Point, int, frozenset[Unit] | None]],
        problems: list[str],
        started: Run,
    ) -> Failure:
        story = [line for part in trail for line in _tell(*part)]
        lines = [*story, "the start after that:", *started.lines]
        return Failure(self._command(trail), problems, lines)

    def _command(self, trail: list[tuple[Point, int, frozenset[Unit] | None]]) -> str:
        flags = " ".join(
            f"--{again}point {point.number} --{again}subset {number}"
            for again, (point, number, _) in zip(("", "then-"), trail, strict=False)
        )
        return f"python -m tests.simulation points --workload {self.workload.name} {flags}"


def _tell(point: Point, _: int, kept: frozenset[Unit] | None) -> list[str]:
    lines = [f"{'a kill' if kept is None else 'a power cut'} before operation {point.number}, "
             f"{point.operation} {point.path}"]  # fmt: skip
    disk = point.image.disk(World("tell"), Descriptors())
    paths = {inode: path for path, inode in disk.files()}
    lines += [f"  {path}: {inode.length} bytes" for inode, path in paths.items()]
    if kept is None:
        return lines
    for unit, item, inode in units_of(point.image):
        mark = "kept" if unit in kept else "lost"
        lines.append(f"  {mark}: {_describe(item, unit[1], inode, disk)}")
    return lines


def _describe(item: Change | Renaming, at: int, inode: Inode, disk: Disk) -> str:
    names = {other.number: path for path, other in disk.files()}
    path = names.get(inode.number, f"inode {inode.number}")
    if isinstance(item, Renaming):
        if item.folder is None:
            return f"the new name {item.new_name} of {path}"
        if item.to is None:
            return f"the removal of {item.name}"
        return f"the renaming of {item.name} to {item.new_name}"
    if item.data is None:
        return f"{path} is {item.position} bytes long"
    end = item.position + len(item.data)
    return f"{path}: {item.position} to {end}, the sector at {at}"
