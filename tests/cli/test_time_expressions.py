"""Every time or duration option accepts each form."""

import pytest

from mq.cli import time_expressions
from mq.cli.manual.descriptions import commands
from mq.cli.runtime.errors import UsageError
from tests.cli.bad_input import LINES
from tests.cli.support import Mq

FORMS = (
    "now",
    "15m",
    "2026-07-01",
    "2026-07-01T12:00Z",
    "2026-07-01#12:00:00:000",
    "1782907200000",
)


def options(*metavars: str) -> list[tuple[str, str]]:
    """Commands that talk to a cluster, with an option of each of these metavars."""
    return [
        (command.name, option.flags[-1])
        for command in commands()
        for option in command.own
        if option.metavar in metavars and command.name in LINES
    ]


def line(name: str, flag: str, value: str) -> list[str]:
    """The command without the option that LINES may give, with this one."""
    words = LINES[name].replace("BROKER", "127.0.0.1:1").replace("FOLDER", "nowhere").split()
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not (flag == "--timestamp" and "-s" in (before, word))
    ]
    return [*name.split(), *kept, flag, value]


# No cases: to describe all commands takes half a second, too much where tests are collected.
def test_what_is_no_time_is_refused_with_the_forms(mq: Mq) -> None:
    for name, flag in options("TIME"):
        finished = mq(*line(name, flag, "soon"), "-n", "127.0.0.1:1")
        assert (finished.status, finished.out) == (64, ""), (name, flag)
        assert "'soon' is not a time" in finished.err, (name, flag)
        assert f"hint: use {time_expressions.FORMS}" in finished.err, (name, flag)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_time_is_taken(form: str, mq: Mq) -> None:
    for name, flag in options("TIME"):
        finished = mq(*line(name, flag, form), "-n", "127.0.0.1:1")
        assert finished.status != 64, (name, flag, finished.err)


def test_what_says_how_long_has_units_or_none(mq: Mq) -> None:
    for name, flag in options("SECONDS", "MS"):
        finished = mq(*line(name, flag, "soon"), "-n", "127.0.0.1:1")
        assert (finished.status, finished.out) == (64, ""), (name, flag)
        text = "'soon' is not a duration such as 500ms, 2s or 15m"
        assert text in finished.err, (name, flag)


def test_there_are_such_options() -> None:
    assert len(set(options("TIME"))) >= 15
    assert {"resetOffsetByTime", "queryMsgByKey", "tail", "printMsg", "message export"} <= {
        name for name, _ in options("TIME")
    }
    assert {"clusterList", "top", "haStatus", "brokerConsumeStats"} <= {
        name for name, _ in options("SECONDS", "MS")
    }


def test_shared_durations_have_units_or_none(mq: Mq) -> None:
    for flag in ("--timeout", "--watch"):
        finished = mq("topicList", flag, "soon")
        assert finished.status == 64
        assert "'soon' is not a duration" in finished.err
    assert mq("topicList", "--timeout", "500ms", "-n", "127.0.0.1:1").status == 69


def test_a_time_that_no_calendar_has_is_refused() -> None:
    with pytest.raises(UsageError, match="is not in the years 1 to 9999"):
        time_expressions.calendar("999999999w", "--begin", 0)
