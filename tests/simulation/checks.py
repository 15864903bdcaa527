"""Checks for the tests of the simulation, in a process that can run it.

`python -m tests.simulation --check NAME...` prints a JSON object with a member for each name. The
simulated machine must be installed before anything of mq is imported, which is impossible in a
pytest process; so each test module starts this once.
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

    # Imported for the checks that they register.
    assert databases and gone_brokers and planted and replicas
    print(json.dumps({name: CHECKS[name]() for name in names}))
    return 0


def _trace(result: Result) -> list[str]:
    return [f"{result.checksum:08x} {result.steps}", *result.lines]


_SEEDS = (11, 14, 4)  # the second has a controlled set, the third TubeMQ


def _traces() -> list[str]:
    return [line for seed in _SEEDS for line in _trace(scenario.run(seed))]


@check
def twice() -> list[list[str]]:
    """The traces of some seeds, twice in the same process."""
    return [_traces() for _ in range(2)]


@check
def who_is_left_out_misses_nothing() -> dict[int, list[str]]:
    """The problems of seeds with producers alone; each kind of group is left out of one of them."""
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
    """Its trace after those of other, shorter scenarios, as the last one of a process."""
    for seed in range(101, 107):
        scenario.run(seed, scenario.Variant(work_seconds=4.0))
    return _traces()
