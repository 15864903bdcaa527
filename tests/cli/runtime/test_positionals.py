"""Arguments without a flag, and the answers to a wrong usage."""

from typing import Annotated, Any

import pytest
import typer

from mq.cli.runtime.effects import writes
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.help import command_text
from mq.cli.runtime.options import CommandParser, one_of, subject
from tests.cli.support import Mq


@writes
@subject("group", "topic")
def seek(
    environment: Environment,
    group: Annotated[str, typer.Option("-g", "--group", metavar="GROUP", help="Group.")],
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic.")],
    to: Annotated[str, typer.Option("-s", "--time", metavar="TIME", help="When.")],
    queue: Annotated[int | None, typer.Option("-q", help="Queue.")] = None,
) -> None:
    """Seek."""


@subject("names")
def several(
    environment: Environment,
    names: Annotated[list[str], typer.Option("-i", "--id", metavar="ID", help="Names.")],
) -> None:
    """Several."""


@one_of("broker", "cluster")
@subject("broker")
def either(
    environment: Environment,
    broker: Annotated[str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT")] = None,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", metavar="CLUSTER")] = None,
) -> None:
    """Either."""


def parsed(function: Any, line: str) -> dict[str, Any]:
    values = CommandParser(function.__name__, function).parse(line.split())
    assert values is not None
    return values


def refused(function: Any, line: str) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        parsed(function, line)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    "line",
    [
        "billing Orders -s 1h",
        "-s 1h billing Orders",
        "billing -s 1h Orders",
        "-g billing Orders -s 1h",
        "billing -t Orders -s 1h",
        "Orders -s 1h -g billing",
        "-g billing -t Orders -s 1h",
        "-s 1h -- billing Orders",
    ],
)
def test_words_go_to_the_subjects_that_no_flag_gives(line: str) -> None:
    found = parsed(seek, line)
    assert (found["group"], found["topic"], found["to"]) == ("billing", "Orders", "1h")


def test_a_subject_that_may_be_repeated_takes_all_words() -> None:
    assert parsed(several, "A B C")["names"] == ["A", "B", "C"]


def test_a_word_counts_where_one_of_several_is_required() -> None:
    assert parsed(either, "127.0.0.1:10911")["broker"] == "127.0.0.1:10911"
    message, _ = refused(either, "127.0.0.1:10911 -c C")
    assert message == "only one of -b/--brokerAddr and -c/--cluster may be given"


@pytest.mark.parametrize(
    ("line", "message", "form"),
    [
        ("", "missing group", "seek GROUP TOPIC -s TIME"),
        ("billing -s 1h", "missing topic", "seek billing TOPIC -s 1h"),
        ("-t Orders", "missing group", "seek GROUP Orders -s TIME"),
    ],
)
def test_a_missing_argument_is_refused_with_the_usage(line: str, message: str, form: str) -> None:
    assert refused(seek, line) == (message, f"usage: mq {form}; see: mq seek --help")


def test_a_word_too_many_is_refused_with_the_form() -> None:
    message, hint = refused(seek, "billing Orders Paid -s 1h")
    assert message == "unexpected argument 'Paid'"
    assert hint == "usage: mq seek billing Orders -s 1h; see: mq seek --help"


def look(
    environment: Environment, topic: Annotated[str | None, typer.Option("-t", "--topic")] = None
) -> None:
    """Look."""


def test_a_surplus_word_beside_options_is_ignored_by_what_changes_nothing() -> None:
    declared = CommandParser("look", look)
    assert declared.parse(["-t", "Orders", "surplus"]) == {"topic": "Orders"}
    assert declared.notes == ["ignored: 'surplus'"]
    assert refused(look, "surplus")[0] == "unexpected argument 'surplus'"


def test_the_name_of_the_command_is_ignored_where_it_is_surplus() -> None:
    declared = CommandParser("look", look)
    assert declared.parse(["look"]) == {"topic": None}
    assert declared.notes == ["ignored: 'look'"]


def test_a_dash_of_a_word_processor_is_no_topic() -> None:
    message, hint = refused(seek, "billing \u2013t Orders -s 1h")
    assert message == "'\u2013t' starts with a dash that is not '-'"
    assert hint == "use: -t"


def test_what_is_given_both_ways_is_refused() -> None:
    message, hint = refused(seek, "billing Orders -t Paid -s 1h")
    assert message == "unexpected argument 'Orders': the topic is given by flag"
    assert hint.startswith("usage: mq seek billing Paid -s 1h")


def test_a_form_quotes_what_a_shell_would_take_apart() -> None:
    with pytest.raises(UsageError) as caught:
        CommandParser("seek", seek).parse(["billing", "a b"])
    assert caught.value.message == "-s/--time is required"
    with pytest.raises(UsageError) as caught:
        CommandParser("seek", seek).parse(["-t", "a b"])
    assert caught.value.hint == "usage: mq seek GROUP 'a b' -s TIME; see: mq seek --help"


def test_help_shows_words_and_flags() -> None:
    text = command_text(CommandParser("seek", seek))
    assert text.startswith("Usage: mq seek GROUP TOPIC -s TIME [OPTIONS]\n")
    assert "-g, --group GROUP" in text


@pytest.mark.parametrize("line", ["-g -t Orders -s 1h", "-t -g billing -s 1h"])
def test_an_option_is_no_value_where_a_word_would_take_its_place(line: str) -> None:
    message, _ = refused(seek, line)
    assert message.endswith(("needs a value, and -t is an option", "and -g is an option"))


def test_what_follows_two_dashes_is_a_word_as_it_stands() -> None:
    assert parsed(seek, "-s 1h -- -group --topic")["group"] == "-group"


def test_an_empty_word_is_not_all_there_is() -> None:
    with pytest.raises(UsageError, match="the argument for the broker is empty"):
        CommandParser("either", either).parse([""])
    with pytest.raises(UsageError, match="the argument for the group is empty"):
        CommandParser("seek", seek).parse(["", "Orders", "-s", "1h"])


@pytest.mark.parametrize(
    "line",
    [
        "createUser bob -p hunter2 extra -b b:1",
        "createUser -p hunter2",
        "updateAclConfig AK -s hunter2 extra -b b:1",
        "user add bob -p hunter2",
        "add user bob -p hunter2",
    ],
)
def test_the_right_form_shows_no_secret(line: str, mq: Mq) -> None:
    refused = mq(*line.split())
    assert refused.status == 64
    assert "hunter2" not in refused.err
