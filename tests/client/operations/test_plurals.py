import pytest

from mq.client.operations.plurals import counted


@pytest.mark.parametrize(
    ("number", "words", "expected"),
    [
        (0, ("broker",), "0 brokers"),
        (1, ("broker",), "1 broker"),
        (2, ("broker",), "2 brokers"),
        (12_000, ("message is", "messages are"), "12,000 messages are"),
        (1, ("message is", "messages are"), "1 message is"),
    ],
)
def test_what_is_counted_is_in_the_right_number(
    number: int, words: tuple[str, ...], expected: str
) -> None:
    assert counted(number, *words) == expected
