"""Searches of a queue by store time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mq.client.machine import clock
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.store_times import (
    Boundary,
    earliest_store_time,
    nearest_offset,
    offset_by_boundary,
    store_time,
)
from tests.daemons.broker.store.stores import put, with_store

BEGAN = 1_700_000_000_000
STORED = (0, 100, 100, 100, 300)  # ms after that, by queue offset


def lower(store: MessageStore, topic: str, queue_id: int, timestamp: int) -> int:
    return offset_by_boundary(store, topic, queue_id, timestamp, Boundary.LOWER)


def upper(store: MessageStore, topic: str, queue_id: int, timestamp: int) -> int:
    return offset_by_boundary(store, topic, queue_id, timestamp, Boundary.UPPER)


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (nearest_offset, {-5000: 0, 49: 0, 50: 0, 51: 1, 100: 1, 199: 3, 200: 3, 201: 4, 5000: 4}),
        (lower, {-5000: 0, 0: 0, 1: 1, 100: 1, 101: 4, 300: 4, 301: 5, 5000: 5}),
        (upper, {-5000: 0, 0: 0, 99: 0, 100: 3, 101: 3, 299: 3, 300: 4, 5000: 4}),
    ],
)
def test_a_search_answers_an_offset_for_each_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    search: Callable[[MessageStore, str, int, int], int],
    expected: dict[int, int],
) -> None:
    async def work(store: MessageStore) -> dict[int, int]:
        for after in STORED:
            monkeypatch.setattr(clock, "milliseconds", lambda now=BEGAN + after: now)
            await put(store, "orders", 0, b"body")
        assert earliest_store_time(store, "orders", 0) == BEGAN
        assert store_time(store, "orders", 0, 4) == BEGAN + 300
        assert store_time(store, "orders", 0, 5) == -1
        return {after: search(store, "orders", 0, BEGAN + after) for after in expected}

    assert with_store(tmp_path, work) == expected


@pytest.mark.parametrize("search", [nearest_offset, lower, upper])
def test_a_queue_without_messages_answers_0(
    tmp_path: Path, search: Callable[[MessageStore, str, int, int], int]
) -> None:
    async def work(store: MessageStore) -> tuple[int, int]:
        store.queue("orders", 1)
        return search(store, "orders", 1, BEGAN), search(store, "none", 0, BEGAN)

    assert with_store(tmp_path, work) == (0, 0)


@pytest.mark.parametrize(("name", "boundary"), [("UPPER", "upper"), ("upper", "upper"),
                                                ("LOWER", "lower"), ("x", "lower")])  # fmt: skip
def test_a_boundary_is_named_in_any_case(name: str, boundary: str) -> None:
    assert Boundary.named(name) == boundary
