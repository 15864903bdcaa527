"""`python -m tests.simulation points`: every crash point of short workloads."""

import argparse
import gc
import sys
from dataclasses import replace

from tests.simulation.crash_points import (
    cutting,
    delivery,
    failing,
    offsets,
    planted,
    popping,
    tube,
)
from tests.simulation.crash_points.explore import Explorer, Limits, Summary
from tests.simulation.crash_points.workloads import ALL

# Imported for the workloads that they register.
assert cutting and delivery and failing and offsets and popping and tube
_FAILURES_TOLD = 5


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation points", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all, crashes of starts, too, and a sum")
    parser.add_argument("--seconds", type=float, default=0.0, help="for each workload, about")
    parser.add_argument("--workload", choices=sorted(ALL), help="this one only")
    parser.add_argument("--point", type=int, help="crash before this operation only")
    parser.add_argument("--subset", type=int, help="0: a kill; others: what a power cut leaves")
    parser.add_argument("--then-point", type=int, help="and again at a point of the start")
    parser.add_argument("--then-subset", type=int)
    parser.add_argument("--whole", type=int, default=8, help="all subsets of so many changes")
    parser.add_argument("--by-chance", type=int, default=200, help="subsets of more")
    parser.add_argument("--again", type=int, default=0, help="of like starts, crash so many again")
    parser.add_argument("--most", type=int, default=1 << 30, help="subsets of a point")
    parser.add_argument("--every", type=int, default=1, help="one point of so many")
    parser.add_argument("--planted", choices=sorted(planted.ALL), help="with this defect in it")
    parser.add_argument("--until-failure", action="store_true", help="of the first start")
    given = parser.parse_args(arguments)
    named = (given.point, given.subset, given.then_point, given.then_subset)
    only = tuple(number for number in named if number is not None)
    limits = Limits(
        given.whole,
        given.by_chance,
        max(given.again, given.all),
        most=given.most,
        every=given.every,
        seconds=given.seconds,
    )
    gc.disable()
    sys.unraisablehook = lambda _: None  # of coroutines that were interrupted
    names = [given.workload] if given.workload else list(ALL)
    if given.until_failure:
        limits = replace(limits, most_failures=1)
    if given.planted:
        limits = replace(limits, most_failures=1)
        names = [planted.plant(given.planted)]
    summaries = []
    for name in names:
        summary = Explorer(ALL[name], limits).explore(only)
        print(line(name, summary), flush=True)
        tell(summary)
        summaries.append(summary)
    if given.all:
        print(total(summaries))
    return any(summary.failures for summary in summaries)


def line(name: str, summary: Summary) -> str:
    starts = summary.starts + summary.again_starts
    return (
        f"{name}: {summary.operations} operations, {summary.points} points, {summary.subsets} "
        f"subsets, {summary.starts} starts; again {summary.again_points} points, "
        f"{summary.again_starts} starts; {summary.images} disks; {summary.seconds:.1f} s"
        f"{'' if summary.is_whole else ' (not whole)'}, "
        f"{starts / max(summary.seconds, 0.001):.0f} starts/s, {len(summary.failures)} failed"
    )


def total(summaries: list[Summary]) -> str:
    def all_of(name: str) -> int:
        return sum(getattr(summary, name) for summary in summaries)

    whole = sum(summary.is_whole for summary in summaries)
    return (
        f"in all: {len(summaries)} workloads ({whole} whole), {all_of('operations')} operations, "
        f"{all_of('points') + all_of('again_points')} crash points, "
        f"{all_of('starts') + all_of('again_starts')} starts from {all_of('images')} disks, "
        f"{sum(summary.seconds for summary in summaries):.0f} s, "
        f"{sum(len(summary.failures) for summary in summaries)} failures"
    )


def tell(summary: Summary) -> None:
    for failure in summary.failures[:_FAILURES_TOLD]:
        print(f"\n{failure.command}", *failure.problems, *failure.story, sep="\n  ")
