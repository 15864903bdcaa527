"""Two polls of a group give rates, and the maximum age of waiting messages."""

from mq.daemons.console.collector.offsets_text import QueueProgress
from mq.daemons.console.collector.progress import GroupProgress, progressed


def _look(
    before: GroupProgress | None, seconds: float, *queues: tuple[int, int, int]
) -> GroupProgress:
    found = [QueueProgress("T", n, end, place, at) for n, (end, place, at) in enumerate(queues)]
    return progressed(before, found, int(seconds * 1000), seconds)


def test_rates_are_what_ends_and_places_grow_by_in_a_second() -> None:
    first = _look(None, 100, (1000, 1000, 1), (50, 40, 1))
    assert first.topics["T"].in_rate is None
    second = _look(first, 160, (1600, 1300, 2), (50, 40, 1))
    topic = second.topics["T"]
    assert (topic.in_rate, topic.consume_rate, second.lag_rate) == (10.0, 5.0, 5.0)
    assert second.lag == 310


def test_a_short_time_between_looks_gives_no_rates() -> None:
    second = _look(_look(None, 100, (10, 0, 0)), 105, (20, 0, 0))
    assert second.topics["T"].in_rate is None
    assert second.lag_rate is None


def test_a_topic_that_was_made_again_and_a_group_that_was_reset_give_no_rates() -> None:
    first = _look(None, 100, (1000, 900, 1))
    second = _look(first, 160, (10, 5, 1))
    assert second.topics["T"].in_rate is None
    assert second.topics["T"].consume_rate is None
    third = _look(first, 160, (1000, 900, 1), (5, 0, 0))  # one more queue
    assert third.topics["T"].in_rate is None


def test_what_waits_was_not_there_when_the_queue_was_last_seen_empty() -> None:
    empty = _look(None, 100, (10, 10, 5_000))
    assert empty.oldest_at is None
    waits = _look(empty, 160, (12, 10, 5_000))  # the last message consumed is much older
    assert waits.oldest_at == 100_000
    still = _look(waits, 220, (12, 10, 5_000))
    assert still.oldest_at == 100_000
    moved = _look(still, 280, (15, 12, 190_000))
    assert moved.oldest_at == 190_000


def test_how_long_it_waits_is_unknown_where_nothing_was_consumed_yet() -> None:
    first = _look(None, 100, (10, 0, 0), (10, 9, 90_000))
    assert first.oldest_at is None
    assert len(first.waiting) == 2
