"""The first screens of the help."""

from typing import Annotated

import pytest
import typer

from mq.cli import catalog, first_screen
from mq.cli.main import load
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import writes
from mq.cli.runtime.help import command_text
from mq.cli.runtime.options import CommandParser, one_of, subject
from mq.cli.show.result import Result
from tests.cli.support import Mq

ALL_COMMANDS = [(group, name) for group, names in catalog.GROUPS.items() for name in names]


@subject("topic")
@one_of("broker", "cluster")
@writes
def fill(
    call: Call,
    size: Annotated[int, typer.Option("-s", "--size", metavar="BYTES", help="Size.")] = 8,
    broker: Annotated[str | None, typer.Option("-b", metavar="BROKER", help="There.")] = None,
    cluster: Annotated[str | None, typer.Option("-c", metavar="CLUSTER", help="All.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag.")] = None,
    *,
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic name.")],
) -> Result:
    """Fill a topic.

    With messages.

    Examples:
        mq fill Orders -b broker-a    with eight bytes
        mq fill Orders -c DefaultCluster --size 1048576 --tag large --tag slow
                                      with large ones
    """
    return Result()


FILL = """\
Usage: mq fill TOPIC (-b BROKER | -c CLUSTER) [OPTIONS]
       mq fill -t TOPIC (-b BROKER | -c CLUSTER) [OPTIONS]

Fill a topic.

With messages.

Examples:
  mq fill Orders -b broker-a  with eight bytes
  mq fill Orders -c DefaultCluster --size 1048576 --tag large --tag slow
                              with large ones

Options:
  -t, --topic TOPIC           Topic name. Required.
  -s, --size BYTES            Size. Default: 8.
  -b BROKER                   There.
  -c CLUSTER                  All.
  --tag TAG                   A tag. Repeatable.

One of -b or -c is required.

Common options: -n/--namesrvAddr, -o/--output, --context, --acl-file,
  --tls-config, --timeout, --columns, --sort, --no-header, --utc, --dry-run.
Their meaning: mq help options, or mq fill --help --all.
"""


def test_help_has_forms_examples_and_own_options_and_folds_what_is_shared() -> None:
    assert command_text(CommandParser("fill", fill)) == FILL


def test_all_of_the_help_explains_what_is_shared() -> None:
    text = command_text(CommandParser("fill", fill), everything=True)
    assert text.startswith(FILL.partition("\nCommon options:")[0])
    assert "\nCommon options:\n  -n, --namesrvAddr HOST:PORT[;…]\n" in text
    assert "  --dry-run                   Show the changes without making them" in text
    assert "mq help options" not in text


def test_all_of_a_commands_help_is_asked_for_in_each_way(mq: Mq) -> None:
    expected = command_text(load("topic", "topicList"), everything=True)
    for words in ("topicList --help --all", "topicList --all -h", "help topicList --all"):
        assert mq(*words.split()).out == expected


@pytest.mark.parametrize(("group", "name"), ALL_COMMANDS)
def test_help_is_readable_in_eighty_columns(group: str, name: str) -> None:
    declared = load(group, name)
    for text in (command_text(declared), command_text(declared, everything=True)):
        for line in text.splitlines():
            # An example can be copied as a whole; nothing else is wider than a terminal.
            assert len(line) <= 80 or line.startswith("  mq "), line
        assert ".." not in text.replace("...", "")
        for wrong in (
            "Required. Required",
            "Repeatable. Repeatable",
            "may be repeated",
            "[required]",
        ):
            assert wrong not in " ".join(text.split())


def test_options_that_commands_share_are_explained_with_what_comes_first(mq: Mq) -> None:
    text = mq("help", "options").out
    flat = " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())
    for flag in ("--namesrvAddr", "--masters", "--columns", "--watch", "--dry-run", "--yes"):
        assert f"{flag} " in flat
    assert "-n, else the context of --context or MQ_CONTEXT, else NAMESRV_ADDR" in flat


def test_the_first_screen_fits_and_names_what_one_types_first(mq: Mq) -> None:
    text = mq().out
    lines = text.splitlines()
    assert 24 <= len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for way in ("mq COMMAND --help", "mq help topic", "mq help all", "mq help options", "mq cheat"):
        assert way in text


def test_what_the_first_screen_names_is_there() -> None:
    for _, commands in first_screen.FIRST:
        for command, _ in commands:
            found = catalog.find(command.split()[1:])
            assert found is not None, command
            assert load(*found[:2]).parse(command.split()[1 + found[2] :]) is not None
