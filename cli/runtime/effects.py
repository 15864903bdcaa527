"""The effects of a command on a cluster, and the shape of its results.

Reads can be repeated (`--watch`). Writes can be shown without being made (`--dry-run`). A command
that destroys data asks first if a user can answer (`--yes` skips that).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from mq.client.operations.columns import Column

F = TypeVar("F", bound=Callable[..., Any])

Columns = tuple[Column, ...]


class Effect(NamedTuple):
    """The declared effects of a command. `destroys` is the text of the question, or empty."""

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
    """Mark a command that changes a cluster or files (see `Call.would`)."""
    return _mark(function, writes=True)


def destroys(what: str) -> Callable[[F], F]:
    """Mark a command with an irreversible change, such as `delete topic {topic}`.

    The braces name parameters of the command; the user is asked about the text.
    """

    def mark(function: F) -> F:
        return _mark(function, writes=True, destroys=what)

    return mark


def endless(function: F) -> F:
    """Mark a command that runs until it is stopped: it has no `--watch`."""
    return _mark(function, endless=True)


def of_tube(function: F) -> F:
    """Mark a command for TubeMQ clusters, which has the options of `shared_options.tube`."""
    return _mark(function, tube=True)


def shows_messages(function: F) -> F:
    """Mark a command whose results have `messages`: it has `--format` and `--body`."""
    return _mark(function, messages=True)


def gives(*tables: Columns, totals: Columns = (), data: Columns | str = ()) -> Callable[[F], F]:
    """Declare the columns of a command's results: a tuple for each table that it may return.

    `totals` are columns, too: name, description and kind of each total. `data` is for a command
    whose JSON differs from the rows: the fields of each item as columns, or a sentence if it is not
    a list of items. docs/json-output.md, the check of `--columns` before a command runs, and the
    contract test derive from it.

        @gives(COLUMNS, totals=(number("diffTotal", "Total lag in messages"),))
    """

    def mark(function: F) -> F:
        function.__dict__["gives"] = ResultShape(tables, totals, data)
        return function

    return mark


def effect_of(function: Callable[..., Any]) -> Effect:
    """Return the marks of the command."""
    found: Effect = function.__dict__.get("effect", Effect())
    return found


def given_by(function: Callable[..., Any]) -> ResultShape | None:
    """Return the declaration of `gives`, or None."""
    found: ResultShape | None = function.__dict__.get("gives")
    return found


def _mark(function: F, **marks: Any) -> F:
    function.__dict__["effect"] = effect_of(function)._replace(**marks)
    return function
