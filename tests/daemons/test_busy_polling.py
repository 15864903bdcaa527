"""A loop that polls for the next request: as long as is set, where that helps, and no more often
than it has helped.
"""

import asyncio
import os

import pytest
import uvloop

from mq.client.machine import clock
from mq.daemons import busy_polling
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.busy_polling import BusyPolling
from mq.daemons.config import ConfigError

SECONDS = 0.5


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


class Clock:
    """A clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)


async def turns(count: int = 3) -> None:
    """Run so many iterations of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def miss(polling: BusyPolling, time: Clock) -> None:
    """Poll without success until the time is over."""
    assert polling.is_polling
    await turns()
    assert polling.is_polling
    time.now += 2 * SECONDS
    await turns()
    assert not polling.is_polling


async def hit(polling: BusyPolling, time: Clock, seconds: float) -> None:
    """Poll without success for a time, then get a request."""
    await turns()
    time.now += seconds
    await turns()
    polling.served()
    await turns()


async def attempts(polling: BusyPolling) -> int:
    """The number of requests until it polls after one."""
    count = 0
    while not polling.is_polling:
        polling.served()
        count += 1
    return count


def test_it_polls_after_a_request_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Clock(monkeypatch)

    async def script() -> None:
        polling = BusyPolling(lambda: SECONDS)
        polling.served()
        for _ in range(5):
            time.now += 0.8 * SECONDS
            await turns()
            polling.served()
            await turns()
            assert polling.is_polling
        await miss(polling, time)

    uvloop.run(script())


def test_requests_that_arrived_with_the_first_are_not_hits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Clock(monkeypatch)

    async def script() -> None:
        polling = BusyPolling(lambda: SECONDS)
        polling.served()
        await miss(polling, time)
        await attempts(polling)
        polling.served()
        await turns()
        for _ in range(6):  # of the seven that balance one miss
            polling.served()
            await turns()
        await miss(polling, time)
        assert await attempts(polling) == 257

    uvloop.run(script())


def test_without_success_it_polls_less_and_with_success_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Clock(monkeypatch)

    async def script() -> None:
        polling = BusyPolling(lambda: SECONDS)
        waited = []
        for _ in range(5):
            waited.append(await attempts(polling))
            await miss(polling, time)
        assert waited == [1, 129, 4097, 4097, 4097]
        await attempts(polling)
        await turns()
        for _ in range(20):
            polling.served()
            await turns()
        await miss(polling, time)
        assert await attempts(polling) == 129

    uvloop.run(script())


def test_with_three_of_four_requests_in_time_it_rarely_polls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Clock(monkeypatch)

    async def script() -> None:
        polling = BusyPolling(lambda: SECONDS)
        for _ in range(12):
            await attempts(polling)
            await turns()
            for _ in range(3):
                polling.served()
                await turns()
            await miss(polling, time)
        assert await attempts(polling) > 1000

    uvloop.run(script())


def test_it_soon_stops_polling_for_a_steady_stream_that_is_always_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Clock(monkeypatch)

    async def script(seconds: float, hits: int) -> bool:
        polling = BusyPolling(lambda: SECONDS)
        for _ in range(hits):
            await attempts(polling)
            await hit(polling, time, seconds)
        return polling.is_polling

    assert uvloop.run(script(0.7 * SECONDS, 40))
    assert not uvloop.run(script(0.8 * SECONDS, 13))


def test_one_late_request_among_early_ones_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Clock(monkeypatch)

    async def script() -> None:
        polling = BusyPolling(lambda: SECONDS)
        polling.served()
        for _ in range(40):
            await hit(polling, time, 0.8 * SECONDS)
            await hit(polling, time, 0.1 * SECONDS)
        assert polling.is_polling

    uvloop.run(script())


def test_the_execution_of_a_request_does_not_count_as_polling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Clock(monkeypatch)

    async def script() -> None:
        polling = BusyPolling(lambda: SECONDS)
        polling.served()
        time.now += 0.8 * SECONDS
        await turns()
        for _ in range(40):
            polling.served()
            time.now += 2 * SECONDS
            await turns()
        assert polling.is_polling

    uvloop.run(script())


def test_when_disabled_it_stops_though_each_request_comes_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = Clock(monkeypatch)

    async def script() -> None:
        seconds = SECONDS
        polling = BusyPolling(lambda: seconds)
        polling.served()
        await hit(polling, time, 0.1 * SECONDS)
        assert polling.is_polling
        seconds = 0.0
        await hit(polling, time, 0.1 * SECONDS)
        assert not polling.is_polling

    uvloop.run(script())


@pytest.mark.parametrize(
    "why", ["told not to", "one processor", "a quota of one and a half", "costly turns of the loop"]
)
def test_it_never_polls_where_that_does_not_help(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    async def script() -> None:
        polling = BusyPolling(lambda: 0.0 if why == "told not to" else SECONDS)
        for _ in range(10_000):
            polling.served()
        assert not polling.is_polling

    if why == "one processor":
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    if why == "a quota of one and a half":
        monkeypatch.setattr(busy_polling, "available", lambda: 1.5)
    if why == "costly turns of the loop":
        asyncio.run(script())
    else:
        uvloop.run(script())


def test_a_change_of_the_setting_applies_soon() -> None:
    async def script() -> None:
        seconds = 0.0
        polling = BusyPolling(lambda: seconds)
        polling.served()
        seconds = SECONDS
        assert await attempts(polling) <= 4097

    uvloop.run(script())


@pytest.mark.parametrize("micros", ["-1", "10001"])
def test_a_time_that_cannot_help_is_refused_by_the_name_of_the_setting(micros: str) -> None:
    with pytest.raises(ConfigError, match=f"busyPollMicros={micros}: must be at"):
        BrokerSettings.load(None, {"busyPollMicros": micros})
    settings = BrokerSettings.load(None, {"busyPollMicros": "10000"})
    with pytest.raises(ConfigError, match="busyPollMicros"):
        settings.update({"busyPollMicros": micros})
    assert settings.operation.busy_poll_micros == 10_000
