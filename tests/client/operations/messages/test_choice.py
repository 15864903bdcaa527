import pytest

from mq.client.operations.errors import InvalidRequest
from mq.client.operations.messages.choice import Choice, parse_queue_ids
from mq.client.operations.messages.rate import Rate


def test_tags_and_sql_together_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^tags and sql cannot go together$"):
        Choice("Orders", tags="a", sql="b = 1")


def test_a_span_of_time_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^begin is not before end: no message is between"):
        Choice("Orders", begin=2, end=2)


def test_a_queue_id_below_0_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^a queue id of -1$"):
        parse_queue_ids([0, -1])


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_lets_nothing_pass_is_refused(rate: float) -> None:
    with pytest.raises(InvalidRequest, match=r"^rate \S+: messages a second must be above 0$"):
        Rate(rate)
