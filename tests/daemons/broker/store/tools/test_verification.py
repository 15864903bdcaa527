"""Verification of a store with many problems."""

from pathlib import Path
from typing import Any

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.tools.verification import Problem, VerificationReport
from tests.daemons.broker.store.damaged import (
    log_file,
    overwrite,
    records_of,
    repaired,
    verified,
    written,
)
from tests.daemons.broker.store.stores import LOG_FILE


class Compared(type(Path())):  # type: ignore[misc]
    """A path that counts how often it is compared with another."""

    times = 0

    def __eq__(self, other: Any) -> bool:
        Compared.times += 1
        return bool(super().__eq__(other))

    __hash__ = type(Path()).__hash__


def test_a_problem_is_not_compared_with_all_that_were_found_before() -> None:
    """Without its queues each message of a store is a problem: a million of them took hours."""
    result = VerificationReport()
    for index in range(30):
        for queue_id in range(100):
            folder = Compared("consumequeue", "Topic", str(queue_id))
            result.found(Problem("queue", folder, index, 0, "no queue for the message"))
    assert (len(result.problems), result.unreported["queue"]) == (100 * 20, 100 * 10)
    assert Compared.times < 10 * 100 * 30


def test_a_log_that_ends_before_the_checkpoint_is_a_problem(tmp_path: Path) -> None:
    """Zeros at its end look as if nothing had ever been written, and queues may end there, too."""
    root = written(tmp_path)
    assert verified(root).problems == []
    last = records_of(root, 1)[-1]
    overwrite(log_file(root, 2), 0, bytes(LOG_FILE))
    [problem] = [one for one in verified(root).problems if one.part == "checkpoint"]
    assert problem.offset == last.physical + last.size
    assert "but the log ends at" in problem.why
    repaired(root)
    assert verified(root).problems == []


def test_a_log_that_ends_in_a_blank_is_sound(tmp_path: Path) -> None:
    """As the log of a slave, which gets the end of a file before the next message."""
    root = written(tmp_path)
    overwrite(log_file(root, 2), 0, bytes(LOG_FILE))
    checkpoint = Checkpoint(root / layout.CHECKPOINT_FILE)
    checkpoint.load()
    checkpoint.moved(checkpoint.message_timestamp, checkpoint.index_timestamp, 2 * LOG_FILE).save()
    assert not [one for one in verified(root).problems if one.part == "checkpoint"]
