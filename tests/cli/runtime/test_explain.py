"""Errors of operations at the command line: their statuses, options and next steps."""

import pytest

from mq.cli.runtime.env import Environment
from mq.cli.runtime.explain import explain
from mq.cli.runtime.status import Status
from mq.client.errors import MessageIllegal
from mq.client.operations import errors
from mq.client.operations.errors import InvalidRequest, NextStep, NotFound, Parameter
from mq.daemons.standalone import Standalone
from tests.cli.support import Mq

STATUSES = {
    errors.NotFound: Status.NOT_FOUND,
    errors.BadData: Status.BAD_DATA,
    errors.Misdeclared: Status.CONFIG,
    errors.Unavailable: Status.UNAVAILABLE,
    errors.Busy: Status.TRY_AGAIN,
    errors.Locked: Status.LOCKED,
    errors.CannotWrite: Status.CANNOT_CREATE,
    errors.InvalidRequest: Status.USAGE,
}


KINDS = [one for one in errors.OperationError.__subclasses__() if one.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_of_an_operation_has_its_status(kind: type[errors.OperationError]) -> None:
    shown = explain(kind("so it is", hint="do that"), Environment.of_process())
    assert (shown.message, shown.hint, shown.status) == ("so it is", "do that", STATUSES[kind])


def test_parameters_are_shown_as_the_options_that_give_them() -> None:
    error = InvalidRequest(Parameter("tags"), " and ", Parameter("sql"), " cannot go together")
    assert str(error) == "tags and sql cannot go together"
    shown = explain(error, Environment.of_process())
    assert shown.message == "--tag and --sql cannot go together"


def test_a_next_step_is_shown_as_the_command_that_takes_it() -> None:
    error = NotFound("no queue", hint=NextStep.LOOK_AT_ROUTE, subject="{Orders}")
    assert explain(error, Environment.of_process()).hint == "see: mq topicRoute -t {Orders}"


@pytest.mark.parametrize("step", NextStep)
def test_every_next_step_has_words_for_the_command_line(step: NextStep) -> None:
    hint = explain(NotFound("none", hint=step), Environment.of_process()).hint
    assert hint != step
    assert "mq " in hint or "-" in hint


@pytest.mark.parametrize(
    ("remark", "hint"),
    [
        (
            "a body of 9 bytes is over the limit of 8 (maxMessageSize)",
            "to allow more: mq updateBrokerConfig -b 10.0.0.1:10911 -k maxMessageSize -v N",
        ),
        (
            "the message is illegal, maybe msg body or properties length not matched. "
            "msg body length limit 8B, msg properties length limit 32KB.",
            "to allow more: mq updateBrokerConfig -b 10.0.0.1:10911 -k maxMessageSize -v N",
        ),
        ("topic is too long", ""),
    ],
)
def test_who_sends_too_large_a_body_is_told_how_to_allow_it(remark: str, hint: str) -> None:
    shown = explain(MessageIllegal(remark, "10.0.0.1:10911"), Environment.of_process())
    assert (shown.hint, shown.status) == (hint, 65)


DEAD = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("topicList", "-n", DEAD), "or give the name server: -n HOST:9876"),
        (("brokerStatus", "-b", DEAD), "for the brokers see: mq clusterList"),
        (("getSyncStateSet", "-a", DEAD, "-b", "a"), "for the brokers see: mq clusterList"),
        (
            ("clusterList", "-n", "BROKER"),
            "-n takes a name server, usually HOST:9876, and -b a broker",
        ),
        (("brokerStatus", "-b", "NAME-SERVER"), "they may be swapped"),
        (
            ("queryMsgByOffset", "-t", "SELF_TEST_TOPIC", "-b", "none", "-i", "0", "-o", "0"),
            "hint: see: mq topicRoute -t SELF_TEST_TOPIC\n",
        ),
    ],
    ids=lambda item: item[0] if isinstance(item, tuple) else "",
)
def test_a_hint_fits_the_peer_that_failed(
    words: tuple[str, ...], hint: str, cluster: Mq, standalone: Standalone
) -> None:
    places = {
        "BROKER": standalone.broker.address,
        "NAME-SERVER": standalone.name_server_address,
    }
    finished = cluster(*(places.get(word, word) for word in words))
    assert finished.status in (66, 69)
    assert hint in finished.err
