"""When a message is due."""

import pytest

from mq.client.operations.errors import InvalidRequest
from mq.client.operations.messages.delays import DelayLimits
from mq.protocol.message import Message


@pytest.mark.parametrize("said", ["-15m", "15m ago", "-1", "-1d"])
def test_a_delay_does_not_count_back(said: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a level"):
        DelayLimits(timed=True).delay(Message("Orders", b"x"), said, 1_800_000_000_000)


def test_a_delay_counts_ahead() -> None:
    message = Message("Orders", b"x")
    DelayLimits(timed=True).delay(message, "15m", 1_800_000_000_000)
    assert message.deliver_at == 1_800_000_900_000
