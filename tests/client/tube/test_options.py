"""The options of TubeMQ's clients."""

from dataclasses import fields
from math import inf
from typing import Any

import pytest

from mq.client.errors import ClientError
from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.credentials import TubeCredentials
from mq.client.tube.options import (
    ConsumeFrom,
    SessionBinding,
    TubeClientKeywords,
    TubeClientOptions,
    TubeConsumerKeywords,
    TubeConsumerOptions,
)
from mq.client.tube.producer_options import TubeProducerKeywords, TubeProducerOptions


def test_the_defaults_are_the_original_s() -> None:
    options = TubeConsumerOptions()
    assert (options.timeout, options.heartbeat_interval, options.heartbeat_failures) == (15, 10, 5)
    assert options.heartbeat_interval_after_failures == 60
    assert (options.ready_wait, options.not_found_wait) == (60, 0.4)
    assert (options.rebalance_wait, options.confirm_wait, options.close_wait) == (3, 60, 10)
    assert (options.report_interval, options.rollback_unconfirmed) == (6, True)
    assert options.consume_from is ConsumeFrom.LATEST
    assert SessionBinding(session_key="s", source_count=1).select_big


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 7.9},
        {"timeout": 300.1},
        {"connect_timeout": 0},
        {"heartbeat_interval": 0},
        {"heartbeat_failures": 0},
        {"heartbeat_interval_after_failures": -1},
        {"ready_wait": -0.1},
        {"not_found_wait": -1},
        {"rebalance_wait": -1},
        {"confirm_wait": 0},
        {"close_wait": -1},
        {"report_interval": 0},
        {"prefetch": -1},
    ],
    ids=str,
)
def test_an_option_out_of_its_bounds_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ClientError, match=name):
        TubeConsumerOptions(**wrong)


def test_one_may_wait_for_ever() -> None:
    assert TubeConsumerOptions(ready_wait=inf, confirm_wait=inf).ready_wait == inf


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_key": "", "source_count": 1},
        {"session_key": "x" * 1025, "source_count": 1},
        {"session_key": "s", "source_count": 0},
        {"session_key": "s", "source_count": 1, "offsets": {"1:orders": 0}},
        {"session_key": "s", "source_count": 1, "offsets": {"1:orders:0": -1}},
    ],
    ids=str,
)
def test_a_session_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ClientError):
        SessionBinding(**wrong)


@pytest.mark.parametrize(
    "arguments",
    [
        ("", "reports", ["orders"]),
        ("10.0.0.1:x", "reports", ["orders"]),
        (["10.0.0.1:0"], "reports", ["orders"]),
        ("10.0.0.1:8715", "1reports", ["orders"]),
        ("10.0.0.1:8715", "", ["orders"]),
        ("10.0.0.1:8715", "reports", []),
        ("10.0.0.1:8715", "reports", ["or-ders"]),
        ("10.0.0.1:8715", "reports", ["o" * 65]),
        ("10.0.0.1:8715", "reports", {"orders": ["a b"]}),
        ("10.0.0.1:8715", "reports", {"orders": [f"i{n}" for n in range(501)]}),
        ("10.0.0.1:8715", "reports", [f"t{n}" for n in range(1025)]),
    ],
    ids=lambda arguments: str(arguments)[:40],
)
def test_names_that_nobody_may_have_are_refused(arguments: tuple[Any, Any, Any]) -> None:
    with pytest.raises(ClientError):
        TubeConsumer(*arguments)


@pytest.mark.parametrize("wrong", [("", "pwd"), ("user", " ")])
def test_a_user_without_a_name_or_a_password_is_refused(wrong: tuple[str, str]) -> None:
    with pytest.raises(ClientError):
        TubeCredentials(*wrong)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(TubeCredentials("user", "secret"))


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (TubeClientOptions, TubeClientKeywords),
        (TubeConsumerOptions, TubeConsumerKeywords),
        (TubeProducerOptions, TubeProducerKeywords),
    ],
)
def test_each_option_is_a_keyword_too(options: Any, keywords: Any) -> None:
    assert {field.name for field in fields(options)} == set(keywords.__annotations__)


def test_a_keyword_that_is_no_option_is_refused() -> None:
    with pytest.raises(TypeError, match="timeouts"):
        TubeConsumer("10.0.0.1:8715", "reports", ["orders"], timeouts=1)  # type: ignore[call-arg]
