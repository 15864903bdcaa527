"""Errors by the codes of responses."""

from mq.client.errors import (
    BrokerError,
    TopicNotExist,
    for_code,
)


def test_codes_without_an_error_of_their_own_keep_their_number() -> None:
    assert type(for_code(17, "no", "a:1")) is TopicNotExist
    assert type(for_code(9999, None, "a:1")) is BrokerError
    assert str(for_code(9999, None, "a:1")) == "a:1: code 9999: no reason given"
