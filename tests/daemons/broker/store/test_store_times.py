"""Which message of a queue is nearest to a time."""

from pathlib import Path

import pytest

from mq.client.machine import clock
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.store_times import earliest_store_time, offset_by_time, store_time
from tests.daemons.broker.store.stores import put, with_store

BEGAN = 1_700_000_000_000
STORED = (0, 100, 100, 300)  # ms after that, by queue offset


def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: list[int]) -> list[int]:
    """The offsets for times, in ms after the first message."""

    async def work(store: MessageStore) -> list[int]:
        for after in STORED:
            monkeypatch.setattr(clock, "milliseconds", lambda now=BEGAN + after: now)
            await put(store, "orders", 0, b"body")
        assert earliest_store_time(store, "orders", 0) == BEGAN
        assert store_time(store, "orders", 0, 3) == BEGAN + 300
        assert store_time(store, "orders", 0, 4) == -1
        return [offset_by_time(store, "orders", 0, BEGAN + after) for after in look]

    return with_store(tmp_path, work)


def test_the_nearest_message_is_found_and_the_earlier_on_a_tie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stored(tmp_path, monkeypatch, [49, 50, 51, 100, 199, 200, 201])
    assert found == [0, 0, 1, 1, 2, 2, 3]


def test_outside_of_what_is_stored_it_is_the_first_or_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored(tmp_path, monkeypatch, [-5000, 5000]) == [0, 3]


def test_a_queue_without_messages_begins_at_0(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> tuple[int, int]:
        store.queue("orders", 1)
        return offset_by_time(store, "orders", 1, BEGAN), offset_by_time(store, "none", 0, BEGAN)

    assert with_store(tmp_path, work) == (0, 0)
