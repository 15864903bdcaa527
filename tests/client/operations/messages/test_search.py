import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mq.client.operations.errors import InvalidRequest, NotFound
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.search import Budget, Position, Search, SearchQuery, SearchResult
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message
from tests.client.clusters import TOPIC, Cluster, cluster
from tests.client.scenarios import opened

BUDGET = Budget(seconds=60)  # a busy machine must not end a search


@asynccontextmanager
async def full() -> AsyncIterator[Cluster]:
    """120 messages over four queues; the last queue has hardly any."""
    async with cluster(enablePropertyFilter="true") as made:
        for number in range(120):
            queue = 3 if number % 40 == 7 else number % 3
            message = Message(
                TOPIC,
                b"body %d%s" % (number, b" needle" if number % 10 == 0 else b""),
                "even" if number % 2 == 0 else "odd",
                [f"key-{number}"],
                {"colour": "red" if number % 3 == 0 else "blue", "number": str(number)},
            )
            await made.producer.send(message, MessageQueue(TOPIC, "broker-a", queue))
            if number % 20 == 19:
                await asyncio.sleep(0.002)  # another millisecond: the order of time means something
        yield made


def search(made: Cluster, count: int = 50, budget: Budget = BUDGET, **wanted: Any) -> Search:
    text = str(wanted.pop("text", ""))
    properties = tuple(wanted.pop("properties", ()))
    choice = Choice(TOPIC, **wanted)
    return Search(made.session, SearchQuery(choice, text, properties, count), budget)


def numbers(found: SearchResult) -> list[int]:
    return [int(message.body.split()[1]) for message in found.messages]


async def pages(made: Cluster, count: int, budget: Budget = BUDGET, **wanted: Any) -> list[int]:
    """All that page after page shows, each position by way of an address."""
    seen: list[int] = []
    position: Position | None = None
    for _ in range(500):
        found = await search(made, count, budget, **wanted).run(position)
        times = [message.store_timestamp for message in found.messages]
        assert times == sorted(times, reverse=True)
        seen += numbers(found)
        if found.after is None:
            return seen
        position = Position.parse(str(found.after))
    raise AssertionError("it does not end")


@opened(full)
async def test_messages_come_newest_first_across_queues(filled: Cluster) -> None:
    found = await search(filled, 25).run()
    times = [message.store_timestamp for message in found.messages]
    assert times == sorted(times, reverse=True)
    assert {number // 20 for number in numbers(found)} == {4, 5}
    assert len(set(numbers(found))) == 25
    assert found.after is not None
    assert found.looked + found.left == 120


@pytest.mark.parametrize("count", [1, 7, 50])
@opened(full)
async def test_pages_repeat_nothing_and_leave_nothing_out(filled: Cluster, count: int) -> None:
    seen = await pages(filled, count)
    assert sorted(seen) == list(range(120))


@opened(full)
async def test_new_messages_do_not_move_the_pages(filled: Cluster) -> None:
    first = await search(filled, 30).run()
    await filled.send(*[b"body %d" % number for number in range(1000, 1020)])
    seen = numbers(first)
    position = first.after
    while position is not None:
        found = await search(filled, 30).run(position)
        seen += numbers(found)
        position = found.after
    assert sorted(seen) == list(range(120))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"text": "needle"}, set(range(0, 120, 10))),
        ({"tags": "odd"}, set(range(1, 120, 2))),
        ({"tags": "odd || none"}, set(range(1, 120, 2))),
        ({"properties": (("colour", "red"),)}, set(range(0, 120, 3))),
        ({"properties": (("colour", "red"), ("number", "9"))}, {9}),
        ({"key": "key-77"}, {77}),
        ({"queue_ids": (3,)}, {7, 47, 87}),
        ({"queue_ids": (3,), "tags": "even"}, set()),
        ({"text": "needle", "tags": "even", "properties": (("colour", "red"),)},
         set(range(0, 120, 30))),
    ],
)  # fmt: skip
@opened(full)
async def test_filters_find_what_they_say(
    filled: Cluster, wanted: dict[str, Any], expected: set[int]
) -> None:
    assert set(await pages(filled, 5, **wanted)) == expected
    found = await search(filled, 200, **wanted).run()
    assert set(numbers(found)) == expected
    assert (
        found.after is None
        and found.left == 0
        and found.looked == (3 if "queue_ids" in wanted else 120)
    )


@opened(full)
async def test_sql_is_left_to_the_broker(filled: Cluster) -> None:
    found = await search(filled, 200, sql="colour = 'red' AND number BETWEEN 10 AND 20").run()
    assert sorted(numbers(found)) == [12, 15, 18]


@opened(cluster)
async def test_a_broker_that_cannot_filter_is_said(made: Cluster) -> None:
    await made.send(b"body 1")
    found = await search(made, sql="a > 5").run()
    assert found.hits == [] and found.after is not None
    assert len(found.failures) == 1 and "SQL92" in found.failures[0]


@opened(full)
async def test_a_time_range_has_its_bounds(filled: Cluster) -> None:
    everything = (await search(filled, 200).run()).messages
    times = sorted({message.store_timestamp for message in everything})
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    found = await search(filled, 200, begin=begin, end=end).run()
    expected = [item.queue_offset for item in everything if begin <= item.store_timestamp < end]
    assert sorted(item.queue_offset for item in found.messages) == sorted(expected)


@opened(full)
async def test_a_spent_budget_says_so_and_goes_on(filled: Cluster) -> None:
    small = Budget(messages=64, seconds=60)
    found = await search(filled, 50, small, text="no such").run()
    assert found.stopped == "messages" and found.messages == []
    assert 0 < found.looked < 120 and found.looked + found.left == 120
    assert found.after is not None
    then = await search(filled, 50, small, text="no such").run(found.after)
    assert then.after is None and then.stopped == "" and then.looked == 120
    assert set(await pages(filled, 50, small, text="needle")) == set(range(0, 120, 10))


@opened(full)
async def test_no_time_and_no_bytes_still_get_further(filled: Cluster) -> None:
    for budget, what in ((Budget(seconds=0), "seconds"), (Budget(bytes=1), "bytes")):
        assert (await search(filled, 100, budget).run()).stopped == what
        assert sorted(await pages(filled, 50, budget)) == list(range(120))


@opened(full)
async def test_bodies_are_cut_but_their_size_is_known(filled: Cluster) -> None:
    wanted = SearchQuery(Choice(TOPIC, key="key-10"))
    (hit,) = (await Search(filled.session, wanted, BUDGET, keep=4).run()).hits
    assert (hit.message.body, hit.size) == (b"body", len(b"body 10 needle"))


@opened(full)
async def test_a_search_that_is_cancelled_leaves_no_task(filled: Cluster) -> None:
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(search(filled, 50, text="no such").run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {item for item in asyncio.all_tasks() - before if not item.done()} <= {
        item for item in asyncio.all_tasks() if "Reader" not in repr(item)
    }


@opened(full)
async def test_an_unknown_queue_is_not_found(filled: Cluster) -> None:
    with pytest.raises(NotFound, match="no such queue"):
        await search(filled, queue_ids=(99,)).run()
    with pytest.raises(InvalidRequest):
        search(filled, 0)


def test_a_position_is_text_and_back() -> None:
    position = Position({("broker-a", 0): 17, ("broker-a", 3): 2, ("b:c", 1): 9}, 44)
    assert str(position) == "44;b:c:1.9;broker-a:0.17.3.2"
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text", ["", "x", "1;b", "1;b:1", "1;b:1.-2", "1;:1.2", "1;b:1.2.3", "9" * 30, "1;b:1.²"]
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Position.parse(text)


@opened(full)
async def test_thousands_of_messages_are_looked_at(filled: Cluster) -> None:
    began = time.monotonic()
    await asyncio.gather(
        *(filled.producer.send(Message(TOPIC, b"filler %d" % number)) for number in range(5000))
    )
    found = await search(filled, 50, text="needle").run()
    assert len(found.messages) == 12 and found.after is None and found.looked == 5120
    assert time.monotonic() - began < 60


@pytest.mark.long
@opened(lambda: cluster(8))
async def test_a_hundred_thousand_messages_take_five_seconds_at_most(made: Cluster) -> None:
    await made.send(b"body 0 needle")
    for _ in range(20):
        await asyncio.gather(
            *(made.producer.send(Message(TOPIC, b"%01024d" % n)) for n in range(5000))
        )
    began = time.process_time()  # of both ends: a machine may be busy with more
    found = await search(made, 50, Budget(messages=200_000), text="needle").run()
    took = time.process_time() - began
    print(f"100,001 messages of 1 KB: {took:.2f} s")
    assert found.looked == 100_001 and len(found.messages) == 1
    assert took < 5


@opened(full)
async def test_a_search_ends_though_its_position_has_a_queue_that_is_gone(filled: Cluster) -> None:
    gone = Position({("broker-a", 3): 3, ("broker-a", 99): 5, ("broker-z", 0): 7})
    found = await search(filled, 2).run(gone)
    assert len(found.hits) == 2 and found.after is not None
    assert found.after.ends == gone.ends | {("broker-a", 3): 1}  # it may come back
    last = await search(filled).run(found.after)
    assert len(last.hits) == 1 and last.after is None
    assert [line.partition(": not in the routes")[0] for line in last.failures] == [
        "broker-a:99",
        "broker-z:0",
    ]
    chosen = await search(filled, queue_ids=(3,)).run(gone)
    assert (len(chosen.hits), chosen.after, chosen.failures) == (3, None, [])
