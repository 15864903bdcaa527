"""Prints all results.

    table     rich tables that fit the terminal; names are wrapped, never cut; bodies of more than
              96 KB are cut
    plain     the text of the Java mqadmin, byte for byte; without one, columns without frames
    json      {"version": 1, "command": …, "status": …, "data": [{…}], "totals": {…},
              "failures": […]}; a continuous command prints one object per line
    yaml      the same as json; a continuous command prints one document per result; a text of more
              than a million characters is on one line
    csv       a line of column names, then the rows
    markdown  a table for reports, issues or pages; long bodies are cut, too

Times are local in table and plain, unless --utc is given, and UTC in ISO 8601 elsewhere; null if
unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from mq.cli.runtime.env import Environment
from mq.cli.show.documents import csv_pieces, json_pieces, yaml_pieces
from mq.cli.show.lazy import LongText, converted, mapped, pieces_of
from mq.cli.show.result import Result, Row
from mq.cli.show.tables import markdown_table, plain_table, rich_table
from mq.cli.show.times import iso
from mq.cli.show.view import View
from mq.cli.show.visible import visible
from mq.client.operations.columns import Column, Kind

if TYPE_CHECKING:
    from rich.console import Console

    from mq.protocol.message import StoredMessage

JSON_VERSION = 1


class Format(Enum):
    """The formats of `--output`."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"


class Printer:
    """Prints the results of one command to the standard output of `environment`.

    `ongoing` means that several results may come; with `every` also empty ones are printed. `view`
    selects columns and rows.
    """

    def __init__(
        self,
        environment: Environment,
        command: str,
        format: Format,
        *,
        view: View | None = None,
        ongoing: bool = False,
        every: bool = False,
    ) -> None:
        self._environment = environment
        self._command = command
        self._format = format
        self._view = view or View()
        self._ongoing = ongoing
        self._every = every
        self._shown_columns: tuple[Column, ...] = ()
        self._too_large: int | None = None  # bytes of the first body that is too large for JSON
        self._reported_size = False
        self.failed = False  # writing to standard output failed

    def show(self, result: Result) -> None:
        """Print `result` on stdout, piece by piece as it is made, and its failures on stderr."""
        if self._is_silent(result):
            return
        messages = result.messages
        result = self._view.apply(result, self._note_size)
        try:
            self._print(result)
        except OSError:
            self.failed = True
            raise
        for failure in result.failures:
            self._environment.report(f"mq {self._command}: {failure}")
        self._report_damage(messages)
        self._report_size()

    def _print(self, result: Result) -> None:
        if self._view.format is not None and result.messages is not None:
            clean = visible if self._environment.terminal else str
            for piece in self._view.text(result.messages, clean, self._note_size):
                self._environment.stdout.write(piece)
        elif (pieces := self._pieces(result)) is not None:
            self._write(pieces)
        else:
            self._laid_out(result)
        self._environment.stdout.flush()

    def _report_damage(self, messages: "Sequence[StoredMessage] | None") -> None:
        """Report the messages whose bodies cannot be decompressed."""
        if messages is None:
            return
        from mq.client.operations.messages.unpacking import Unpacked

        if isinstance(messages, Unpacked):
            for message_id, why in messages.damaged.items():
                self._environment.report(
                    f"mq {self._command}: message {message_id}: the stored body is shown: {why}"
                )

    def _note_size(self, size: int) -> None:
        if self._too_large is None:
            self._too_large = size

    def _report_size(self) -> None:
        """Report once that a body is too large for JSON and is printed as text."""
        if self._too_large is None or self._reported_size:
            return
        from mq.client.operations.messages.json_bodies import MOST_JSON

        self._reported_size = True
        self._environment.report(
            f"mq {self._command}: a body of {self._too_large} bytes is printed as text: "
            f"JSON is limited to {MOST_JSON} bytes"
        )
        self._environment.report("hint: to print only the body: --format %b --body text")

    def _write(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            self._environment.say(piece)

    def _pieces(self, result: Result) -> Iterable[str] | None:
        """Return the pieces for formats that can be written incrementally."""
        if self._format is Format.JSON:
            return json_pieces(self._document(result), indent=not self._ongoing)
        if self._format is Format.YAML:
            return yaml_pieces(self._document(result), explicit=self._ongoing)
        if self._format is Format.CSV:
            return _csv(result, header=self._needs_header(result))
        if self._format is Format.PLAIN and not result.parts:
            return self._plain(result)
        return None

    def _laid_out(self, result: Result) -> None:
        if result.parts:
            self._page(result)
        elif self._format is Format.MARKDOWN:
            header = self._needs_header(result)
            self._environment.say(markdown_table(result, header=header, utc=self._view.utc))
        else:
            self._table(result)

    def _needs_header(self, result: Result) -> bool:
        """Return whether to print column names; with several results only if they change."""
        needed = self._view.header and self._shown_columns != result.columns
        self._shown_columns = result.columns
        return needed

    def _plain(self, result: Result) -> Iterable[str]:
        if result.plain is not None:
            return pieces_of(result.plain)
        if not result.columns or (self._ongoing and not (result.rows or self._every)):
            return ()
        return plain_table(result, header=self._needs_header(result), utc=self._view.utc)

    def _is_silent(self, result: Result) -> bool:
        """Return whether to skip a result: a plain line between messages has no rows."""
        people = self._format in (Format.PLAIN, Format.CSV)
        empty = not (people or result.rows or result.failures)
        return self._ongoing and empty and not self._every

    def _document(self, result: Result) -> dict[str, Any]:
        """Return the JSON and YAML form. Its shape is a contract: add fields, never change one."""
        data = result.data
        if data is None:
            names = [column.name for column in result.columns]
            data = mapped(
                lambda cells: dict(zip(names, cells, strict=True)),
                mapped(_cells(result.columns), result.rows),
            )
        return {
            "version": JSON_VERSION,
            "command": self._command,
            "status": int(result.final_status),
            "data": data,
            "totals": result.totals,
            "failures": result.failures,
        }

    def _page(self, result: Result) -> None:
        """Print the parts of a page, one after the other."""
        from mq.cli.show import page

        view = self._view
        if self._format is Format.TABLE:
            page.print_parts(self._console(), result.parts, header=view.header, utc=view.utc)
            return
        write = page.markdown if self._format is Format.MARKDOWN else page.plain
        self._environment.say(write(result.parts, header=view.header, utc=view.utc))

    def _console(self) -> "Console":
        from rich.console import Console

        environment = self._environment
        return Console(
            file=environment.stdout,
            width=environment.columns,
            force_terminal=environment.terminal,
            no_color=not environment.color,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def _table(self, result: Result) -> None:
        console = self._console()
        if result.columns:
            header, utc = self._view.header, self._view.utc
            console.print(rich_table(result.columns, result.rows, header=header, utc=utc))
        elif isinstance(result.plain, LongText):
            self._write(converted(result.plain, visible))
        elif result.plain:
            console.print(visible(result.plain.rstrip("\n")), soft_wrap=True)
        for name, value in result.totals.items():
            console.print(visible(f"{name}: {value}"))
        for note in result.notes:
            console.print(visible(note), soft_wrap=True)


def _csv(result: Result, *, header: bool) -> Iterator[str]:
    head = [column.name for column in result.columns] if header else []
    return csv_pieces(head, map(_cells(result.columns), result.rows))


def _cells(columns: Sequence[Column]) -> Callable[[Row], list[Any]]:
    """Return a function that converts a row for programs: times in ISO 8601, other values
    unchanged.
    """
    times = [index for index, column in enumerate(columns) if column.kind is Kind.TIME]

    def cells(row: Row) -> list[Any]:
        found = list(row)
        for index in times:
            found[index] = iso(found[index])
        return found

    return cells
