"""What a command gives back: rows under named columns, and the text that mqadmin prints.

A command never prints. `mq.cli.show.output` prints its result in the format asked for and the main
entry ends with its status. A command that goes on for long (`printMsg`, `clusterList -i`) is an
async generator: every result that it yields is printed at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from mq.cli.runtime.status import Status

if TYPE_CHECKING:
    from mq.cli.show.lazy import LongText
    from mq.protocol.message import StoredMessage


class Kind(Enum):
    """How the values of a column are shown."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"  # milliseconds since the epoch; 0 and None mean: not known
    FLAG = "flag"  # a boolean, shown to people as * or nothing
    NESTED = "nested"  # an object or a list, in JSON alone


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `name` is the JSON field (camelCase, as on the wire), `title` heads the table.

    An empty `title` leaves the column out of tables, which have little room.
    """

    name: str
    title: str
    kind: Kind = Kind.TEXT


def text(name: str, title: str) -> Column:
    """A column of text."""
    return Column(name, title)


def number(name: str, title: str) -> Column:
    """A column of numbers, aligned at the right."""
    return Column(name, title, Kind.NUMBER)


def time(name: str, title: str) -> Column:
    """A column of points in time."""
    return Column(name, title, Kind.TIME)


def flag(name: str, title: str) -> Column:
    """A column of booleans."""
    return Column(name, title, Kind.FLAG)


def nested(name: str, title: str) -> Column:
    """A field of JSON that holds an object or a list."""
    return Column(name, title, Kind.NESTED)


Row = tuple[Any, ...]


@dataclass(slots=True)
class Part:
    """A part of a page: facts, a line each, or a table; below it lines of text.

    Facts are a column for the kind and the name of each, and its value; one that is None has none.
    """

    title: str
    columns: tuple[Column, ...] = ()
    rows: list[Row] = field(default_factory=list)
    facts: list[tuple[Column, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """The outcome of a command.

    `plain` is the exact text of the Java mqadmin for the same state; None where mqadmin has no such
    command, and `mq` then lays out `rows` itself. `totals` are facts about the whole, by JSON name.
    `failures` are the parts that failed, one line each, printed on stderr; a result with failures
    is PARTLY done unless `status` says otherwise. `data` replaces the rows in JSON and YAML where
    the thing itself is not tabular. `notes` stand below a table: what to know besides.
    `messages` are those that the rows (and the items of `data`) stand for, one by one, in a command
    that `shows_messages`; None in a result that is about something else. `parts` are a page for
    people, one below the other; `columns` and `rows` are then the part that csv gives, and that is
    left where columns or an order are asked for.

    What is large, as messages may be, is made when it is printed, and only what is printed:
    `plain` may be a text in pieces, `rows`, `data` and `messages` what `mq.cli.show.lazy` maps. Who
    yields such a result keeps what it is made of until it is shown.
    """

    columns: tuple[Column, ...] = ()
    rows: Sequence[Row] = field(default_factory=list)
    plain: "str | LongText | None" = None
    totals: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    data: Any = None
    status: Status = Status.DONE
    notes: list[str] = field(default_factory=list)
    messages: Sequence["StoredMessage"] | None = None
    parts: list[Part] = field(default_factory=list)

    @property
    def final_status(self) -> Status:
        """The status `mq` ends with."""
        if self.failures and self.status is Status.DONE:
            return Status.PARTLY
        return self.status
