"""Work in short-lived processes: one that is killed costs what it had in hand, and no more."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.children import Died, run_each, run_one

SECONDS = 60.0


def outcomes(work: Callable[[int], Any], count: int, seconds: float = SECONDS) -> dict[int, Any]:
    done = run_each(work, range(count), processes=2, at_a_time=3, seconds=seconds)
    return {item: str(answer) if isinstance(answer, Died) else answer for item, answer in done}


def test_each_item_is_answered_by_a_process_that_does_a_few() -> None:
    pids = outcomes(lambda _: os.getpid(), 8)
    assert sorted(pids) == list(range(8))
    assert os.getpid() not in pids.values()
    assert len(set(pids.values())) == 3


def test_a_process_that_is_killed_costs_the_item_in_its_hands_only() -> None:
    def work(item: int) -> int:
        if item in (1, 2):  # as one that takes too much memory is
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    killed = "its process ended with SIGKILL"
    assert outcomes(work, 6) == {0: 0, 1: killed, 2: killed, 3: 3, 4: 4, 5: 5}


def test_a_process_that_says_nothing_for_too_long_is_killed() -> None:
    def work(item: int) -> int:
        if item == 0:
            time.sleep(SECONDS)
        return item

    began = time.monotonic()
    assert outcomes(work, 2, seconds=1.0) == {0: "its process ended with SIGKILL", 1: 1}
    assert time.monotonic() - began < SECONDS / 2


def test_who_waits_for_one_answer_learns_that_its_process_died() -> None:
    assert run_one(lambda item: item + 1, 1, SECONDS) == 2
    with pytest.raises(Died, match="ended with status 3"):
        run_one(lambda _: os._exit(3), 1, SECONDS)


def test_processes_end_with_who_asks_for_no_more_answers() -> None:
    answers = run_each(lambda _: os.getpid(), range(9), processes=2, at_a_time=3, seconds=SECONDS)
    _, first = next(answers)
    assert isinstance(first, int)
    answers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
