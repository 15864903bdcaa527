"""Rows under named columns as text: for a terminal, without frames, in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mq.cli.show.lazy import LongText, Text, converted, pieces_of
from mq.cli.show.result import Column, Kind, Result, Row
from mq.cli.show.times import iso, local
from mq.cli.show.visible import on_one_line, visible

if TYPE_CHECKING:
    from rich.table import Table

# Characters of a long text in a table with frames, or in a report: they are for people, and are
# laid out as a whole.
MOST_SHOWN = 4096


def rich_table(
    columns: Sequence[Column], rows: Iterable[Row], *, header: bool, utc: bool
) -> "Table":
    """A table for people."""
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
        del row  # before the next is made
    return table


def plain_table(result: Result, *, header: bool, utc: bool) -> Iterator[str]:
    """Columns without frames; their names begin with #, as those of the Java mqadmin. In pieces:
    rows are gone through twice, first for how wide the columns are.

    By hand: tabulate takes longer to import than most commands take for all the rest.
    """
    shown = [index for index, column in enumerate(result.columns) if column.title]
    columns = [result.columns[index] for index in shown]
    at_right = [column.kind is Kind.NUMBER for column in columns]
    # Titles stand a little apart, as tabulate did it, which these columns were laid out by.
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
    """A line of columns, without blanks at its end."""

    def padded() -> Iterator[str]:
        between = ""
        for cell, width, right in zip(cells, widths, at_right, strict=True):
            gap = " " * (width - _width(cell))
            yield between
            yield gap if right else ""
            yield from pieces_of(cell)
            yield "" if right else gap
            between = "  "

    held: list[str] = []  # blanks, until something comes behind them
    for piece in padded():
        kept = piece.rstrip()
        if kept:
            yield from held
            yield kept
            held.clear()
        held.append(piece[len(kept) :])
    yield "\n"


def _width(text: Text) -> int:
    """How many places of a terminal a text takes: letters of East Asia take two."""
    if isinstance(text, LongText):
        return sum(map(_width, text))
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )


def markdown_table(result: Result, *, header: bool, utc: bool) -> str:
    """A table of GitHub's Markdown; a result without columns as preformatted text."""
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
    """A row as people read it."""
    pairs = zip(columns, row, strict=True)
    return [cell_text(column.kind, value, utc=utc) for column, value in pairs]


def cell_text(kind: Kind, value: Any, *, utc: bool) -> str:
    if kind is Kind.TIME:
        return (iso(value) or "") if utc else local(value)
    if kind is Kind.FLAG:
        return "*" if value else ""
    if isinstance(value, LongText) and value.is_longer_than(MOST_SHOWN):
        return f"{value.beginning(MOST_SHOWN)}… (all of it: -o plain, json, yaml or csv)"
    return "" if value is None else on_one_line(str(value))
