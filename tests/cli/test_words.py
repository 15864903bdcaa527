"""Commands print the standard terms, each in one spelling."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.cli import catalog
from mq.cli.main import load
from mq.cli.manual.descriptions import commands
from mq.cli.manual.shared_help import shared_groups
from mq.cli.runtime.effects import given_by

ROOT = Path(__file__).resolve().parents[2]
# Titles that are units or names of figures, and are written small everywhere.
SMALL = re.compile(r"p\d+(\.\d+)?\b")


def titles() -> Iterator[tuple[str, str]]:
    for group, names in catalog.GROUPS.items():
        for name in names:
            given = given_by(load(group, name).function)
            for table in given.tables if given else ():
                for column in table:
                    if column.title:
                        yield name, column.title


def test_headers_of_tables_begin_with_a_capital_and_go_on_small() -> None:
    for command, title in titles():
        assert title[0].isupper() or SMALL.match(title), (command, title)
        words = title.split()[1:]
        assert not [word for word in words if word.istitle() and len(word) > 1], (command, title)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("doctor", ("Severity", "Check", "Subject", "Finding", "Fix")),
        ("dlq show", ("Reason",)),
        ("top", ("Trend", "Growth/s", "Lag")),
        ("context list", ("Access key file", "TLS file")),
    ],
)
def test_headers_are_words_of_the_field(command: str, expected: tuple[str, ...]) -> None:
    shown = {title for name, title in titles() if name == command}
    assert set(expected) <= shown


def test_options_say_what_they_are_in_words_that_stand_alone() -> None:
    own = [(item.name, option) for item in commands() for option in item.own]
    shared = [(title, option) for title, options in shared_groups() for option in options]
    for name, option in (*own, *shared):
        text = option.words
        assert text[0].isupper() or text.startswith(("now", "end,", "0:")), (name, text)
        assert ".." not in text, (name, text)
        assert len(re.findall("Repeatable|repeated", text)) <= 1, (name, text)
        assert not re.match(r"(Of (this|that|each|it)|At (this|each)|That|Whose|As) ", text), (
            name,
            text,
        )


@pytest.mark.parametrize(
    "words",
    [
        "knows {len(known)} brokers",
        "were given up",
        "is no store:",
        "as fast as it goes",
        "all that goes",
        "Go on where a cut one",
        "May be repeated",
    ],
)
def test_what_was_stumbled_over_is_said_nowhere_any_more(words: str) -> None:
    for folder in ("cli", "client/operations"):
        for source in (ROOT / folder).rglob("*.py"):
            assert words not in source.read_text("utf-8"), source
