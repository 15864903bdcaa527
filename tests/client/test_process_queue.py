import asyncio

import pytest

from mq.client import process_queue
from mq.client.process_queue import ProcessQueue
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage

QUEUE = MessageQueue("topic", "broker", 0)


def messages(*offsets: int, size: int = 100) -> list[StoredMessage]:
    made = []
    for offset in offsets:
        message = StoredMessage("topic", b"x", queue_offset=offset)
        message.store_size = size
        made.append(message)
    return made


def pulled(held: ProcessQueue, *offsets: int, size: int = 100) -> list[StoredMessage]:
    made = messages(*offsets, size=size)
    held.next_offset = offsets[-1] + 1
    held.add(made)
    return made


def test_the_offset_to_commit_is_the_lowest_unfinished_one() -> None:
    held = ProcessQueue(QUEUE, 5)
    assert held.commit_offset == 5
    first, second, third = pulled(held, 5, 6, 7)
    held.finish(second)
    assert held.commit_offset == 5
    held.finish(first)
    assert held.commit_offset == 7
    held.finish(third)
    assert held.commit_offset == 8


def test_what_a_filter_left_out_counts_as_finished() -> None:
    held = ProcessQueue(QUEUE, 0)
    (only,) = pulled(held, 3)
    held.next_offset = 10
    assert held.commit_offset == 3
    held.finish(only)
    assert held.commit_offset == 10


def test_finishing_twice_changes_nothing() -> None:
    held = ProcessQueue(QUEUE, 0)
    first, _ = pulled(held, 0, 1)
    held.finish(first)
    held.finish(first)
    assert (held.count, held.bytes, held.commit_offset) == (1, 100, 1)


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_MESSAGES", 3), ("MAX_BYTES", 300), ("MAX_SPAN", 2)]
)
def test_a_full_queue_has_room_again_when_messages_are_finished(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(process_queue, limit, value)

    async def scenario() -> None:
        held = ProcessQueue(QUEUE, 0)
        made = pulled(held, 0, 1, 2)
        assert not held.has_room
        waiter = asyncio.ensure_future(held.wait_for_room())
        await asyncio.sleep(0)
        assert not waiter.done()
        held.finish(made[0])
        async with asyncio.timeout(5):
            await waiter

    asyncio.run(scenario())


def test_a_stuck_message_bounds_how_far_the_rest_may_run_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_queue, "MAX_SPAN", 10)
    held = ProcessQueue(QUEUE, 0)
    stuck, *others = pulled(held, *range(11))
    for message in others:
        held.finish(message)
    assert not held.has_room
    held.finish(stuck)
    assert held.has_room


def test_an_ordered_line_is_worked_off_by_one_at_a_time() -> None:
    held = ProcessQueue(QUEUE, 0)
    assert held.line_up(messages(0, 1))
    assert not held.line_up(messages(2))  # somebody is at it already
    seen = []
    while (message := held.first_in_line()) is not None:
        seen.append(message.queue_offset)
        held.leave_line()
    held.end_turn()
    assert seen == [0, 1, 2]
    assert held.line_up(messages(3))


def test_a_queue_that_was_lost_hands_out_nothing_more() -> None:
    held = ProcessQueue(QUEUE, 0)
    held.line_up(messages(0))
    held.dropped = True
    assert held.first_in_line() is None
