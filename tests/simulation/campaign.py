"""Many seeds on all cores: speed, injected faults, failures."""

import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tests.simulation import report, scenario, shrinking
from tests.simulation.children import Died, run_each, run_one
from tests.simulation.faults import KINDS
from tests.simulation.scenario import Result, Variant

# Seeds per process; their memory is freed when the process ends.
_AT_A_TIME = 10
# Seconds of a core; a seed takes a fraction of one.
LONGEST_SEED = 15.0
# Seconds of real time on a busy machine. A process that takes longer is killed.
_DEAF_SEED = 6 * LONGEST_SEED
# Failures that are reduced and shown; for later ones only the first problem is shown.
_MOST_SHOWN = 10


@dataclass
class Outcome:
    """The result of a seed, small enough to be sent to another process."""

    seed: int
    problems: list[str]
    faults: dict[str, int]
    situations: dict[str, int]
    requests: int
    seconds: float  # simulated
    story: str = ""


@dataclass
class Total:
    """The results of all seeds so far."""

    seeds: int = 0
    requests: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    situations: Counter[str] = field(default_factory=Counter)
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.requests += outcome.requests
        self.seconds += outcome.seconds
        self.faults.update(outcome.faults)
        self.situations.update(outcome.situations)
        if outcome.problems:
            self.failed.append(outcome)


def run(
    first: int,
    seeds: int,
    processes: int,
    shrink_seconds: float,
    *,
    step: int = 1,
    is_over_at_failure: bool = False,
) -> int:
    """Run seeds, each ``step``-th, print the results, and return the exit status."""
    began = time.monotonic()
    total = Total()
    shown = _Progress(seeds)
    numbers = range(first, first + seeds * step, step)
    for outcome in _outcomes(numbers, min(processes, seeds)):
        total.add(outcome)
        shown.show(total, began)
        if outcome.problems:
            shown.clear()
            print(f"seed {outcome.seed} failed: {outcome.problems[0]}", flush=True)
            if is_over_at_failure:
                break
    shown.clear()
    elapsed = time.monotonic() - began
    for outcome in sorted(total.failed, key=lambda one: one.seed)[:_MOST_SHOWN]:
        print()
        print(_failure(outcome, shrink_seconds), flush=True)
    print(_summary(total, elapsed))
    return int(bool(total.failed))


def _outcomes(numbers: range, processes: int) -> Iterator[Outcome]:
    answers = run_each(
        _run_one, numbers, processes=processes, at_a_time=_AT_A_TIME, seconds=_DEAF_SEED
    )
    for seed, answer in answers:
        if isinstance(answer, Died):
            text = f"the simulation failed: {answer}"
            yield Outcome(seed, [text], {}, {}, 0, 0.0, f"SEED {seed} FAILED\n{text}")
        else:
            yield answer


class Hangs(BaseException):
    """A seed takes too long: an endless loop in one turn of an event loop."""


def _hangs(*_: object) -> None:
    raise Hangs(f"after {LONGEST_SEED:g} s of a core it is in one step of the simulation still")


def _run_one(seed: int) -> Outcome:
    signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_SEED)
    try:
        result = scenario.run(seed)
    except (Exception, Hangs):
        # A failure of the simulator itself: the other seeds are run all the same.
        text = traceback.format_exc()
        problem = f"the simulation failed: {text.splitlines()[-1]}"
        return Outcome(seed, [problem], {}, {}, 0, 0.0, text)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return Outcome(
        seed, result.problems, result.faults, result.situations, result.requests, result.seconds
    )


def _failure(outcome: Outcome, shrink_seconds: float) -> str:
    if outcome.story:
        return outcome.story
    whole = run_alone(outcome.seed)
    if not shrink_seconds or not whole.problems:
        return report.failure(whole)
    small = shrinking.shrink(whole, shrink_seconds, run_alone)
    return report.failure(small, shrunk_from=replace(whole, lines=[], details=[]))


def run_alone(seed: int, variant: Variant = scenario.WHOLE) -> Result:
    """`scenario.run` in a process of its own; the death of that process is a problem."""
    try:
        return run_one(lambda one: scenario.run(one, variant), seed, _DEAF_SEED)
    except Died as error:
        return Result(seed, variant, [f"the simulation failed: {error}"], 0, {}, {}, 0, [], [])


def _summary(total: Total, elapsed: float) -> str:
    kinds = sorted(KINDS, key=lambda name: (-total.faults[name], name))
    errors = sorted(set(total.faults) - set(KINDS))
    situations = sorted(total.situations)
    width = max(map(len, [*kinds, *errors, *situations]), default=0)
    lines = [
        f"{total.seeds} seeds in {elapsed:.1f} s, {60 * total.seeds / elapsed:.0f} a minute: "
        f"{total.seconds / 3600:.1f} hours of {total.requests} requests; "
        f"{len(total.failed)} failed",
        "injected:",
        *(f"  {name:<{width}} {total.faults[name]:>7}" for name in kinds),
        "and on the way:",
        *(f"  {name:<{width}} {total.faults[name]:>7}" for name in errors),
        "of pairs and sets of brokers:",
        *(f"  {name:<{width}} {total.situations[name]:>7}" for name in situations),
    ]
    if total.failed:
        lines.append("failed: " + " ".join(str(one.seed) for one in total.failed))
    return "\n".join(lines)


class _Progress:
    """A line that is overwritten, on a terminal only."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._shown = sys.stderr.isatty()

    def show(self, total: Total, began: float) -> None:
        if self._shown:
            rate = 60 * total.seeds / max(time.monotonic() - began, 1e-9)
            text = f"{total.seeds} of {self._seeds} seeds, {rate:.0f} a minute"
            print(
                f"\r\033[K{text}, {len(total.failed)} failed", end="", file=sys.stderr, flush=True
            )

    def clear(self) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
