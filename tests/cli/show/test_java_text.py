"""Expected numbers were printed by OpenJDK 17."""

import pytest

from mq.cli.show import java_text
from mq.client.operations import time_expressions


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.125, 2, "0.13"),  # Python's own format gives 0.12
        (2.675, 2, "2.68"),  # and 2.67
        (1.005, 2, "1.01"),
        (123456.785, 4, "123456.7850"),
        (1e-9, 2, "0.00"),
        (0, 2, "0.00"),
    ],
)
def test_halves_are_rounded_up(value: float, digits: int, text: str) -> None:
    assert java_text.fixed(value, digits) == text


def test_times_are_written_as_the_tools_do() -> None:
    moment = time_expressions.parse("2026-07-01#12:30:05:250", 0)
    assert java_text.milliseconds_text(moment) == "2026-07-01 12:30:05,250"
