import pytest

from mq.cli.show.ages import age, seconds

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (0, "0s"),
        (999, "0s"),
        (59_000, "59s"),
        (60_000, "1m"),
        (192_000, "3m 12s"),
        (3_600_000, "1h"),
        (90_061_000, "1d 1h"),
        (-5_000, "0s"),
    ],
)
def test_an_age_has_two_units_at_most(ago: int, text: str) -> None:
    assert age(NOW - ago, NOW) == text
    assert seconds(NOW - ago, NOW) == max(0, ago) / 1000


def test_what_is_not_known_has_no_age() -> None:
    assert (age(None, NOW), seconds(None, NOW)) == (None, None)
