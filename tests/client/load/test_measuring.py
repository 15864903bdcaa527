"""Which messages of a load are counted, and in which second."""

from dataclasses import replace

from mq.client.load.measuring import LoadCounter, clock
from mq.client.load.plan import LoadResult, Plan

TOPIC = "Load"


def test_what_ends_outside_the_measured_time_is_not_counted() -> None:
    plan = Plan("produce", TOPIC, [], seconds=1000, warm=1000)
    measuring = LoadCounter(plan, clock())
    measuring.ended(clock(), 1, 10)
    assert (measuring.total, measuring.result.messages) == (1, 0)
    measuring = LoadCounter(replace(plan, warm=0), clock())
    measuring.ended(clock() - 3_000_000, 1, 10)
    assert measuring.finish().messages == 1
    [latency] = measuring.result.latencies
    assert latency >= 3000


def test_results_of_workers_add_up() -> None:
    whole = LoadResult(messages=2, size=20, seconds=1.0, latencies={5: 2})
    whole.add(LoadResult(3, 30, 2.0, {5: 1, 7: 2}, {2: 1}, "busy"))
    assert whole == LoadResult(5, 50, 2.0, {5: 3, 7: 2}, {2: 1}, "busy")
    assert LoadResult.decode(whole.encode()) == whole
