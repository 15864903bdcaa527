"""Errors by response code."""

import pytest

from mq.client.errors import (
    BrokerError,
    NoneThere,
    RemoteSystemError,
    TopicNotExist,
    for_code,
)


def test_an_unknown_code_becomes_a_broker_error_with_its_number() -> None:
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
def test_the_remark_of_a_system_error_can_mean_that_there_is_none(remark: str) -> None:
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
def test_other_remarks_do_not_mean_that_there_is_none(remark: str | None) -> None:
    assert type(for_code(1, remark, "a:1")) is RemoteSystemError
