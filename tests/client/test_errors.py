"""Errors by the codes of responses."""

import pytest

from mq.client.errors import (
    BrokerError,
    NoneThere,
    RemoteSystemError,
    TopicNotExist,
    for_code,
)


def test_codes_without_an_error_of_their_own_keep_their_number() -> None:
    assert type(for_code(17, "no", "a:1")) is TopicNotExist
    assert type(for_code(9999, None, "a:1")) is BrokerError
    assert str(for_code(9999, None, "a:1")) == "a:1: code 9999: no reason given"


@pytest.mark.parametrize(
    "remark",
    [
        "no consumer for this group, billing",
        "the producer group[shop] not exist",
        "The stats <TOPIC_PUT_NUMS> <Orders> not exist",
        "can not find message by the offset, 4711",
        "The checkpoint is null",
    ],
)
def test_words_of_a_system_error_tell_that_there_is_none(remark: str) -> None:
    error = for_code(1, remark, "a:1")
    assert type(error) is NoneThere
    assert str(error) == f"a:1: SYSTEM_ERROR: {remark}"
    assert type(for_code(2, remark, "a:1")) is not NoneThere


@pytest.mark.parametrize(
    "remark",
    [
        None,
        "java.util.NoSuchElementException",
        "org.apache.rocketmq.acl.common.AclException: no consumer for this group, billing",
        "the producer group[shop] is too large",
    ],
)
def test_a_failure_says_nothing_of_what_is_there(remark: str | None) -> None:
    assert type(for_code(1, remark, "a:1")) is RemoteSystemError
