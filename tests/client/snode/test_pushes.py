"""Which pushed messages are taken, and when a queue is pulled from."""

import asyncio
from math import inf

import pytest

from mq.client.snode import pushes as module
from mq.client.snode.pushes import Pushes, PushOutcome


def heard() -> Pushes:
    """Pushes that received the first push, and read up to a message stored at 1000."""
    pushes = Pushes()
    assert pushes.offer(5, 1, 5) is PushOutcome.IGNORED
    pushes.pulled(0, 1000)
    return pushes


def wants_pull(pushes: Pushes) -> bool:
    """Whether the queue is to be pulled from at once."""

    async def main() -> bool:
        try:
            async with asyncio.timeout(0.001):
                await pushes.wait_for_pull()
            return True
        except TimeoutError:
            return False

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PUSH_PATIENCE_SECONDS", 60.0)


def test_the_first_push_is_ignored_even_if_it_is_the_next_message() -> None:
    pushes = Pushes()
    assert pushes.offer(7, 2000, 7) is PushOutcome.IGNORED
    assert pushes.offer(7, 2000, 7) is PushOutcome.TAKEN


def test_without_pushes_a_queue_is_pulled_from() -> None:
    assert wants_pull(Pushes())
    assert wants_pull(heard())


def test_while_pushes_come_it_is_not() -> None:
    pushes = heard()
    assert pushes.offer(8, 1001, 8) is PushOutcome.TAKEN
    pushes.taken(1001)
    assert not wants_pull(pushes)


def test_after_a_while_without_one_it_is_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pushes = heard()
    pushes.taken(1001)
    monkeypatch.setattr(module, "PUSH_PATIENCE_SECONDS", 0.05)

    async def main() -> None:
        async with asyncio.timeout(30):
            await pushes.wait_for_pull()

    asyncio.run(main())


@pytest.mark.parametrize("offset", [9, 10, 1_000_000])
def test_a_push_after_a_gap_is_ignored_and_the_gap_is_pulled(offset: int) -> None:
    pushes = heard()
    pushes.taken(1001)
    assert pushes.offer(offset, 1002, 8) is PushOutcome.IGNORED
    assert wants_pull(pushes)
    assert not wants_pull(pushes)  # once


@pytest.mark.parametrize("offset", [0, 7])
def test_an_earlier_push_is_ignored(offset: int) -> None:
    pushes = heard()
    pushes.taken(1001)
    assert pushes.offer(offset, 1001, 8) is PushOutcome.IGNORED
    assert not wants_pull(pushes)


def test_an_earlier_offset_with_a_later_store_time_shows_that_a_queue_lost_its_end() -> None:
    pushes = heard()
    pushes.taken(1001)
    assert pushes.offer(7, 1002, 8) is PushOutcome.IGNORED
    assert wants_pull(pushes)


def test_a_pull_that_finds_the_queue_as_it_was_ends_the_suspicion() -> None:
    pushes = heard()
    pushes.taken(1001)
    pushes.offer(6, 1002, 8)
    pushes.offer(7, 1003, 8)
    assert pushes.restart_from == 6
    pushes.pulled(0, 0)
    assert pushes.restart_from == inf


def test_what_cannot_be_taken_is_pulled() -> None:
    pushes = heard()
    pushes.taken(1001)
    pushes.want_pull()
    assert wants_pull(pushes)
