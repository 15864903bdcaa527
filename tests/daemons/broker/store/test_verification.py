"""What a verification of a store makes of many problems."""

from pathlib import Path
from typing import Any

from mq.daemons.broker.store.verification import Problem, Verified


class Compared(type(Path())):  # type: ignore[misc]
    """A path that counts how often it is compared with another."""

    times = 0

    def __eq__(self, other: Any) -> bool:
        Compared.times += 1
        return bool(super().__eq__(other))

    __hash__ = type(Path()).__hash__


def test_a_problem_is_not_compared_with_all_that_were_found_before() -> None:
    """Without its queues each message of a store has one: a million took hours."""
    result = Verified()
    for index in range(30):
        for queue_id in range(100):
            folder = Compared("consumequeue", "Topic", str(queue_id))
            result.found(Problem("queue", folder, index, 0, "no queue for the message"))
    assert (len(result.problems), result.untold["queue"]) == (100 * 20, 100 * 10)
    assert Compared.times < 10 * 100 * 30
