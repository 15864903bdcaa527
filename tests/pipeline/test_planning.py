from mq.pipeline.offsets import Queue
from mq.pipeline.planning import limited, ranges, split
from mq.pipeline.puller import QueueRange

Q0, Q1, Q2 = (Queue("T", "broker-a", n) for n in range(3))


def test_empty_queues_are_not_read() -> None:
    assert ranges({Q0: 5, Q1: 0}, {Q0: 5, Q1: 3, Q2: 9}) == [QueueRange(*Q1, 0, 3)]


def test_large_queues_are_split_more_often() -> None:
    whole = [QueueRange(*Q0, 0, 900), QueueRange(*Q1, 50, 150)]
    parts = split(whole, 10)
    assert [(part.queue_id, part.begin, part.end) for part in parts] == [
        *((0, n * 100, n * 100 + 100) for n in range(9)),
        (1, 50, 150),
    ]


def test_no_range_is_split_into_empty_parts() -> None:
    assert split([QueueRange(*Q0, 7, 9)], 100) == [QueueRange(*Q0, 7, 8), QueueRange(*Q0, 8, 9)]
    assert split([], 4) == []
    assert split([QueueRange(*Q0, 0, 10)], None) == [QueueRange(*Q0, 0, 10)]


def test_a_limit_is_divided_in_proportion_to_the_messages_of_queues() -> None:
    end = limited({Q0: 10, Q1: 0, Q2: 4}, {Q0: 110, Q1: 100, Q2: 4}, 7)
    assert end == {Q0: 14, Q1: 3, Q2: 4}
    assert sum(end.values()) == 14 + 7
    assert limited({Q0: 0}, {Q0: 5}, 7) == {Q0: 5}


def test_the_smallest_limit_still_makes_progress() -> None:
    assert limited({Q0: 0, Q1: 0}, {Q0: 9, Q1: 9}, 1) == {Q0: 1, Q1: 0}
