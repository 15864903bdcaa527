"""Times and durations as people write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mq.client.operations import time_expressions

NOW = 1_790_000_000.5  # seconds since 1970


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("now", 0),
        ("15m", 900_000),
        ("1h", 3_600_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("500ms", 500),
        ("0s", 0),
        ("-15m", 900_000),
        ("15m ago", 900_000),
    ],
)
def test_an_age_is_counted_back_from_now(text: str, age: int) -> None:
    assert time_expressions.parse(text, NOW) == int(NOW * 1000) - age


@pytest.mark.parametrize("text", ["0", "-1", "1790000000500", " 1790000000500 "])
def test_a_number_is_milliseconds(text: str) -> None:
    assert time_expressions.parse(text, NOW) == int(text)


def test_iso_times_have_their_own_zone_or_the_local_one() -> None:
    noon = int(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp() * 1000)
    assert time_expressions.parse("2026-07-01T12:00Z", NOW) == noon
    assert time_expressions.parse("2026-07-01T12:00:00.000+00:00", NOW) == noon
    east = timezone(timedelta(hours=2))
    assert time_expressions.parse("2026-07-01 14:00", NOW, east) == noon
    local = int(datetime(2026, 7, 1, 12).astimezone().timestamp() * 1000)
    assert time_expressions.parse("2026-07-01T12:00", NOW) == local
    assert time_expressions.parse("2026-07-01", NOW) == local - 12 * 3_600_000


def test_times_in_the_form_of_mqadmin_are_local() -> None:
    local = int(datetime(2026, 7, 1, 12, 30, 5).astimezone().timestamp() * 1000)
    assert time_expressions.parse("2026-07-01#12:30:05:250", NOW) == local + 250


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "15 m",
        "m15",
        "9" * 20,
        "2026-13-01",
        "2026-07-01#12",
        "1h2",
        "10x",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        time_expressions.parse(text, NOW)


def test_durations_are_numbers_or_have_units() -> None:
    assert time_expressions.seconds("2") == 2
    assert time_expressions.seconds("0.5") == 0.5
    assert time_expressions.seconds("500ms") == 0.5
    assert time_expressions.seconds("1m30s") == 90
    assert time_expressions.milliseconds("50") == 50
    assert time_expressions.milliseconds("2s") == 2000


@pytest.mark.parametrize("text", ["", "soon", "1y", "ms", "5m2"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    for read in (
        time_expressions.seconds,
        time_expressions.milliseconds,
        time_expressions.duration,
    ):
        with pytest.raises(ValueError, match="is not a duration such as"):
            read(text)
