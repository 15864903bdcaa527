import asyncio

import pytest

from mq.client.errors import ClientError
from mq.client.pull.process_queue import FlowLimits, ProcessQueue
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


def test_messages_that_a_filter_left_out_count_as_finished() -> None:
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
    "limits", [FlowLimits(messages=3), FlowLimits(bytes=300), FlowLimits(span=2)], ids=str
)
def test_a_full_queue_has_room_again_when_messages_are_finished(limits: FlowLimits) -> None:
    async def scenario() -> None:
        held = ProcessQueue(QUEUE, 0, limits)
        made = pulled(held, 0, 1, 2)
        assert not held.has_room
        waiter = asyncio.ensure_future(held.wait_for_room())
        await asyncio.sleep(0)
        assert not waiter.done()
        held.finish(made[0])
        async with asyncio.timeout(60):
            await waiter

    asyncio.run(scenario())


def test_a_stuck_message_bounds_the_span_of_the_messages_after_it() -> None:
    held = ProcessQueue(QUEUE, 0, FlowLimits(span=10))
    stuck, *others = pulled(held, *range(11))
    for message in others:
        held.finish(message)
    assert not held.has_room
    held.finish(stuck)
    assert held.has_room


def test_the_limits_of_a_topic_are_shared_by_its_queues() -> None:
    limits = FlowLimits(topic_messages=100, topic_bytes=1000)
    assert limits.of_queue(4) == FlowLimits(messages=25, bytes=250)
    assert limits.of_queue(2000) == FlowLimits(messages=1, bytes=1)
    assert FlowLimits(messages=7).of_queue(4) == FlowLimits(messages=7)


def test_new_limits_apply_at_once() -> None:
    held = ProcessQueue(QUEUE, 0)
    pulled(held, 0, 1, 2)
    held.limit(FlowLimits(messages=2))
    assert not held.has_room


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ClientError, match="the flow limit topic_bytes must be at least 1, not 0"):
        FlowLimits(topic_bytes=0)


def test_a_paused_queue_takes_nothing_until_it_is_resumed() -> None:
    async def scenario() -> None:
        held = ProcessQueue(QUEUE, 0)
        held.paused = True
        waiter = asyncio.ensure_future(held.wait_for_room())
        (message,) = pulled(held, 0)
        held.finish(message)
        await asyncio.sleep(0)
        assert not waiter.done()
        held.paused = False
        async with asyncio.timeout(60):
            await waiter

    asyncio.run(scenario())


def test_an_ordered_line_has_one_worker_at_a_time() -> None:
    held = ProcessQueue(QUEUE, 0)
    assert held.line_up(messages(0, 1))
    assert not held.line_up(messages(2, 3))  # another worker has the turn
    seen = []
    while first := held.first_in_line(3):
        seen.append([message.queue_offset for message in first])
        held.leave_line(len(first))
    assert seen == [[0, 1, 2], [3]]
    held.end_consuming(turn=True)
    assert held.line_up(messages(4))


def test_a_suspended_line_keeps_its_turn_but_is_idle() -> None:
    held = ProcessQueue(QUEUE, 0)
    held.line_up(messages(0))
    held.begin_consuming()
    assert not held.is_idle
    held.end_consuming(turn=False)
    assert held.is_idle
    assert not held.line_up(messages(1))


def test_a_dropped_queue_returns_no_messages() -> None:
    held = ProcessQueue(QUEUE, 0)
    held.line_up(messages(0))
    held.dropped = True
    assert held.first_in_line() == []
