"""What a command does to a cluster, and what it gives back.

Reads can be repeated (`--watch`). Writes can be shown without being done (`--dry-run`). What
destroys data asks first, where somebody is there to answer (`--yes` answers beforehand).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from mq.cli.show.result import Column

F = TypeVar("F", bound=Callable[..., Any])

Columns = tuple[Column, ...]


class Effect(NamedTuple):
    """What is declared about a command. `destroys` is the question's text, or empty."""

    writes: bool = False
    destroys: str = ""
    endless: bool = False
    messages: bool = False
    tube: bool = False


class ResultShape(NamedTuple):
    """The shape of a command's results: see `gives`."""

    tables: tuple[Columns, ...] = ()
    totals: Columns = ()
    data: Columns | str = ()


def writes(function: F) -> F:
    """Mark a command that changes something: in a cluster, or in files (see `Call.would`)."""
    return _mark(function, writes=True)


def destroys(what: str) -> Callable[[F], F]:
    """Mark a command that changes something for good, such as `delete topic {topic}`.

    The braces name parameters of the command; the text is what the user is asked about.
    """

    def mark(function: F) -> F:
        return _mark(function, writes=True, destroys=what)

    return mark


def endless(function: F) -> F:
    """Mark a command that goes on by itself until it is stopped: it has no `--watch`."""
    return _mark(function, endless=True)


def of_tube(function: F) -> F:
    """Mark a command for clusters of TubeMQ: its options say which one (`shared_options.tube`)."""
    return _mark(function, tube=True)


def shows_messages(function: F) -> F:
    """Mark a command whose results have `messages`: it has `--format` and `--body`."""
    return _mark(function, messages=True)


def gives(*tables: Columns, totals: Columns = (), data: Columns | str = ()) -> Callable[[F], F]:
    """Declare the columns of a command's results: a tuple per table that it may give.

    `totals` are columns, too: each total's name, what it is, its kind. `data` is for a command
    whose JSON is not the rows: the fields of each item as columns, or a sentence where it is no
    list of items. From this derive docs/json-output.md, the check of `--columns` before a command
    runs, and the contract test.

        @gives(COLUMNS, totals=(number("diffTotal", "Messages that wait"),))
    """

    def mark(function: F) -> F:
        function.__dict__["gives"] = ResultShape(tables, totals, data)
        return function

    return mark


def effect_of(function: Callable[..., Any]) -> Effect:
    """What the command is marked with."""
    found: Effect = function.__dict__.get("effect", Effect())
    return found


def given_by(function: Callable[..., Any]) -> ResultShape | None:
    """What `gives` declared, if anything."""
    found: ResultShape | None = function.__dict__.get("gives")
    return found


def _mark(function: F, **marks: Any) -> F:
    function.__dict__["effect"] = effect_of(function)._replace(**marks)
    return function
