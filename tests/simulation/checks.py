"""What the tests of the simulation want to know, found out in a process that can run it.

`python -m tests.simulation --check NAME...` prints an object of JSON with a member for each name.
The simulated machine has to be there before anything of mq is imported, which it is in no process
of pytest; so each module of tests starts this once.
"""

import json
from collections.abc import Callable
from typing import Any

from tests.simulation import scenario
from tests.simulation.scenario import Result

Check = Callable[[], Any]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def main(names: list[str]) -> int:
    from tests.simulation import databases, gone_brokers, planted, replicas

    # Imported for the checks that they add.
    assert databases and gone_brokers and planted and replicas
    print(json.dumps({name: CHECKS[name]() for name in names}))
    return 0


def _trace(result: Result) -> list[str]:
    return [f"{result.checksum:08x} {result.steps}", *result.lines]


_SEEDS = (11, 14, 4)  # controllers keep the brokers of the second, the third is TubeMQ's


def _traces() -> list[str]:
    return [line for seed in _SEEDS for line in _trace(scenario.run(seed))]


@check
def twice() -> list[list[str]]:
    """The traces of some seeds, and once more in the same process."""
    return [_traces() for _ in range(2)]


@check
def who_is_left_out_misses_nothing() -> dict[int, list[str]]:
    """What is wrong where producers are alone, by seed: of these each kind of group is in one."""
    producers = frozenset(("producer-of-Orders", "producer-2", "producer-of-News",
                           "producer-of-Popped", "payer", "producer-of-Steps"))  # fmt: skip
    variant = scenario.Variant(faults=frozenset(), clients=producers, work_seconds=4.0)
    return {seed: scenario.run(seed, variant).problems for seed in range(1, 9)}


@check
def alone() -> list[str]:
    """The trace of a seed."""
    return _traces()


@check
def behind_others() -> list[str]:
    """Its trace behind those of others, in shorter scenarios, as the last one of a process."""
    for seed in range(101, 107):
        scenario.run(seed, scenario.Variant(work_seconds=4.0))
    return _traces()
