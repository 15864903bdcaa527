"""The result of a command: rows under named columns, and the text that mqadmin prints.

A command never prints. `mq.cli.show.output` prints its result in the selected format, and the main
program exits with its status. A long-running command (`printMsg`, `clusterList -i`) is an async
generator: each result that it yields is printed at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mq.cli.runtime.status import Status
from mq.client.operations.columns import Column

if TYPE_CHECKING:
    from mq.cli.show.lazy import LongText
    from mq.protocol.message import StoredMessage


Row = tuple[Any, ...]


@dataclass(slots=True)
class Part:
    """A part of a page: facts, one per line, or a table; then lines of text.

    A fact is a column with its kind and name, and a value; None is not printed.
    """

    title: str
    columns: tuple[Column, ...] = ()
    rows: list[Row] = field(default_factory=list)
    facts: list[tuple[Column, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """The outcome of a command.

    `plain` is the exact text of the Java mqadmin for the same state; None if mqadmin has no such
    command, and `mq` then lays out `rows` itself. `totals` are facts about the whole, by JSON name.
    `failures` are the parts that failed, one line each, printed on stderr; a result with failures
    is PARTLY done unless `status` is set. `data` replaces the rows in JSON and YAML if they are not
    tabular. `notes` are lines below a table. `messages` are those of the rows (and of the items of
    `data`), in a command that `shows_messages`; None in other results. `parts` are a page for
    users; `columns` and `rows` are then the part for csv, and for a selection of columns or an
    order.

    Large values, such as messages, are made when they are printed, and only if they are: `plain`
    may be a text in pieces, and `rows`, `data` and `messages` sequences of `mq.cli.show.lazy`. The
    creator of such a result keeps its sources until it is printed.
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
        """The exit status of `mq`."""
        if self.failures and self.status is Status.DONE:
            return Status.PARTLY
        return self.status
