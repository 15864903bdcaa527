"""Rows under named columns as text: for a terminal, without frames, in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mq.cli.show.lazy import LongText, Text, converted, pieces_of
from mq.cli.show.result import Result, Row
from mq.cli.show.times import iso, local
from mq.cli.show.visible import on_one_line, visible
from mq.client.operations.columns import Column, Kind

if TYPE_CHECKING:
    from rich.table import Table

# The longest text, in characters, in a table with frames or a report, which are laid out as a
# whole.
MAX_SHOWN = 4096


def rich_table(
    columns: Sequence[Column], rows: Iterable[Row], *, header: bool, utc: bool
) -> "Table":
    """Return a table for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=header)
    shown = [index for index, column in enumerate(columns) if column.title]
    for index in shown:
        right = columns[index].kind is Kind.NUMBER
        table.add_column(
            columns[index].title, justify="right" if right else "left", overflow="fold"
        )
    for row in rows:
        texts = [visible(text) for text in _texts(columns, row, utc=utc)]
        table.add_row(*(texts[index] for index in shown))
        del row  # before the next one is made
    return table


def plain_table(result: Result, *, header: bool, utc: bool) -> Iterator[str]:
    """Yield columns without frames; as in the Java mqadmin, their names start with #.

    Rows are iterated twice, first for the widths of the columns. tabulate is not used: its import
    takes longer than most commands.
    """
    shown = [index for index, column in enumerate(result.columns) if column.title]
    columns = [result.columns[index] for index in shown]
    at_right = [column.kind is Kind.NUMBER for column in columns]
    # Titles have extra space, as in tabulate, whose layout this keeps.
    widths = [_width(f"#{column.title}  ") if header else 0 for column in columns]

    def lines() -> Iterator[list[Text]]:
        for row in result.rows:
            yield [
                _on_one_line(value)
                if isinstance(value, LongText)
                else cell_text(column.kind, value, utc=utc)
                for column, value in zip(columns, (row[index] for index in shown), strict=True)
            ]
            del row

    for line in lines():
        widths = [max(width, _width(cell)) for width, cell in zip(widths, line, strict=True)]
        del line
    if header:
        titles: list[Text] = [f"#{column.title}" for column in columns]
        right = at_right if result.rows else [False] * len(columns)
        yield from _line(titles, widths, right)
    for line in lines():
        yield from _line(line, widths, at_right)
        del line


def _on_one_line(text: LongText) -> LongText:
    return LongText(lambda: converted(text, on_one_line))


def _line(cells: Sequence[Text], widths: list[int], at_right: list[bool]) -> Iterator[str]:
    """Yield a line of columns, without trailing blanks."""

    def padded() -> Iterator[str]:
        between = ""
        for cell, width, right in zip(cells, widths, at_right, strict=True):
            gap = " " * (width - _width(cell))
            yield between
            yield gap if right else ""
            yield from pieces_of(cell)
            yield "" if right else gap
            between = "  "

    held: list[str] = []  # blanks, until other text follows
    for piece in padded():
        kept = piece.rstrip()
        if kept:
            yield from held
            yield kept
            held.clear()
        held.append(piece[len(kept) :])
    yield "\n"


def _width(text: Text) -> int:
    """Return the width of a text at a terminal: East Asian characters take two columns."""
    if isinstance(text, LongText):
        return sum(map(_width, text))
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )


def markdown_table(result: Result, *, header: bool, utc: bool) -> str:
    """Return a table of GitHub's Markdown; a result without columns as preformatted text."""
    if not result.columns:
        return f"```\n{str(result.plain).rstrip()}\n```\n" if result.plain else ""
    from tabulate import tabulate

    shown = [index for index, column in enumerate(result.columns) if column.title]
    columns = [result.columns[index] for index in shown]

    def cells(row: Row) -> list[str]:
        texts = _texts(columns, tuple(row[index] for index in shown), utc=utc)
        return [text.replace("\\", "\\\\").replace("|", "\\|") for text in texts]

    rows = list(map(cells, result.rows))
    text = tabulate(
        rows,
        headers=[column.title for column in columns] if header else (),
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["right" if column.kind is Kind.NUMBER else "left" for column in columns]
        if rows
        else None,
    )
    return f"{text}\n"


def _texts(columns: Sequence[Column], row: Row, *, utc: bool) -> list[str]:
    """Return the texts of a row."""
    pairs = zip(columns, row, strict=True)
    return [cell_text(column.kind, value, utc=utc) for column, value in pairs]


def cell_text(kind: Kind, value: Any, *, utc: bool) -> str:
    if kind is Kind.TIME:
        return (iso(value) or "") if utc else local(value)
    if kind is Kind.FLAG:
        return "*" if value else ""
    if isinstance(value, LongText) and value.is_longer_than(MAX_SHOWN):
        return f"{value.beginning(MAX_SHOWN)}… (for all: -o plain, json, yaml or csv)"
    return "" if value is None else on_one_line(str(value))
