import asyncio

import pytest

from mq.client.operations.messages.lanes import Lane
from mq.client.operations.messages.sending import BATCH_MESSAGES
from mq.protocol.message import Message
from tests.client.scenarios import in_a_loop

MESSAGE = Message("T", b"x")


class Sending:
    """Sends a batch when the test releases it."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Semaphore(0)
        self.error: Exception | None = None

    async def __call__(self, batch: list[Message], marks: list[int]) -> None:
        self.batches.append(marks)
        await self.go.acquire()
        if self.error is not None:
            raise self.error


def hurried() -> tuple[Sending, Lane[int]]:
    """A lane with 1 in flight, and 2 waiting after it."""
    sending = Sending()
    lane: Lane[int] = Lane(sending)
    for mark in (1, 2):
        lane.add(MESSAGE, mark)
        lane.hurry()
    return sending, lane


@in_a_loop
async def test_a_full_batch_waits_for_the_one_before_it() -> None:
    sending = Sending()
    lane: Lane[int] = Lane(sending)
    full = [lane.add(MESSAGE, number) for number in range(BATCH_MESSAGES)]
    assert full == [False] * (BATCH_MESSAGES - 1) + [True]
    await lane.start()
    lane.add(MESSAGE, 1000)
    second = asyncio.ensure_future(lane.start())
    await asyncio.sleep(0)
    assert (len(sending.batches), second.done()) == (1, False)
    sending.go.release()
    await second
    await asyncio.sleep(0)
    assert sending.batches[1:] == [[1000]]
    sending.go.release()
    await lane.land()


@in_a_loop
async def test_a_hurried_batch_is_sent_after_the_one_in_flight() -> None:
    sending = Sending()
    lane: Lane[int] = Lane(sending)
    lane.add(MESSAGE, 1)
    lane.hurry()
    lane.add(MESSAGE, 2)
    lane.add(MESSAGE, 3)
    lane.hurry()
    await asyncio.sleep(0)
    assert sending.batches == [[1]]
    sending.go.release()
    sending.go.release()
    await lane.land()
    assert (sending.batches, lane.waiting) == ([[1], [2, 3]], [])


@in_a_loop
async def test_land_also_waits_for_a_hurried_batch() -> None:
    sending, lane = hurried()
    await asyncio.sleep(0)
    sending.go.release()  # The batch in flight ends in the next turn of the loop,
    landing = asyncio.ensure_future(lane.land())  # and land() is called before the lane notices it
    for _ in range(5):
        await asyncio.sleep(0)
    assert (sending.batches, landing.done()) == ([[1], [2]], False)
    sending.go.release()
    await landing


@in_a_loop
async def test_a_hurried_batch_keeps_its_place_in_the_order() -> None:
    sending, lane = hurried()
    await asyncio.sleep(0)

    async def start_and_hurry() -> None:
        await lane.start()
        lane.add(MESSAGE, 3)
        lane.hurry()

    sending.go.release()
    starting = asyncio.ensure_future(start_and_hurry())
    for _ in range(5):
        await asyncio.sleep(0)
    assert sending.batches == [[1], [2]]
    for _ in range(2):
        sending.go.release()
    await starting
    await lane.land()
    assert sending.batches == [[1], [2], [3]]


@in_a_loop
async def test_a_resting_lane_keeps_waiting_messages() -> None:
    sending, lane = hurried()
    lane.rest()
    sending.go.release()
    await lane.land()
    assert (sending.batches, lane.waiting) == ([[1]], [2])


@in_a_loop
async def test_cancelling_land_does_not_cancel_the_batch_in_flight() -> None:
    sending = Sending()
    lane: Lane[int] = Lane(sending)
    lane.add(MESSAGE, 1)
    lane.hurry()
    landing = asyncio.ensure_future(lane.land())
    await asyncio.sleep(0)
    landing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await landing
    sending.error = ValueError("told once")
    sending.go.release()
    with pytest.raises(ValueError, match="told once"):
        await lane.land()
    await lane.land()


@in_a_loop
async def test_a_failure_during_a_cancelled_wait_is_raised_by_the_next_call() -> None:
    sending = Sending()
    sending.error = ValueError("told once")
    lane: Lane[int] = Lane(sending)
    lane.add(MESSAGE, 1)
    lane.hurry()
    landing = asyncio.ensure_future(lane.land())
    await asyncio.sleep(0)
    flight = lane._flight
    assert flight is not None
    flight.add_done_callback(lambda _: landing.cancel())
    lane.add(MESSAGE, 2)
    sending.go.release()
    with pytest.raises(asyncio.CancelledError):
        await landing
    with pytest.raises(ValueError, match="told once"):
        await lane.start()
    assert (sending.batches, lane.waiting) == ([[1]], [2])
    await lane.land()


@in_a_loop
async def test_a_hurried_batch_is_not_sent_after_a_failure() -> None:
    sending = Sending()
    sending.error = ValueError("not stored")
    sending.go.release()
    lane: Lane[int] = Lane(sending)
    lane.add(MESSAGE, 1)
    lane.hurry()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    lane.add(MESSAGE, 2)
    lane.hurry()
    with pytest.raises(ValueError, match="not stored"):
        await lane.start()
    assert (sending.batches, lane.waiting) == ([[1]], [2])
