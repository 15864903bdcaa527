import datetime
import time

import pytest

from mq.daemons.broker.statistics.day_totals import DayTotals, seconds_to_midnight
from mq.daemons.broker.statistics.stats import BrokerStats


def test_each_midnight_moves_the_totals_by_a_day() -> None:
    puts = 10
    stats = BrokerStats(lambda: (puts, 0))
    stats.transferred = 4
    days = DayTotals(stats)
    assert (days.yesterday_morning, days.today_morning, days.now()) == ((0, 0), (0, 0), (10, 4))
    days.day_changed()
    puts = 30
    assert (days.yesterday_morning, days.today_morning, days.now()) == ((0, 0), (10, 4), (30, 4))
    days.day_changed()
    assert (days.yesterday_morning, days.today_morning) == ((10, 4), (30, 4))


@pytest.mark.parametrize(
    ("moment", "hours"),
    [
        ("2025-01-31T23:00", 1),
        ("2025-01-31T00:00", 24),
        ("2025-03-30T00:00", 23),  # summer time begins in Berlin
        ("2025-10-26T00:00", 25),  # and ends
    ],
)
def test_a_day_ends_at_the_local_midnight(
    moment: str, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        now = datetime.datetime.fromisoformat(moment).astimezone()
        assert seconds_to_midnight(now) == hours * 3600
    finally:
        monkeypatch.undo()
        time.tzset()
