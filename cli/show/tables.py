"""Rows under named columns as text: for a terminal, without frames, in Markdown."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mq.cli.show.result import Column, Kind, Result, Row
from mq.cli.show.times import iso, local
from mq.cli.show.visible import visible

if TYPE_CHECKING:
    from rich.table import Table


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
    return table


def plain_table(result: Result, *, header: bool, utc: bool) -> str:
    """Columns without frames; their names begin with #, as those of the Java mqadmin.

    By hand: tabulate takes longer to import than most commands take for all the rest.
    """
    shown = [index for index, column in enumerate(result.columns) if column.title]
    columns = [result.columns[index] for index in shown]
    lines = [_texts(columns, tuple(row[index] for index in shown), utc=utc) for row in result.rows]
    at_right = [column.kind is Kind.NUMBER for column in columns]
    if header:
        # Titles stand a little apart, as tabulate did it, which these columns were laid out by.
        lines.insert(0, [f"#{column.title}  " for column in columns])
    widths = [max(map(_width, cells)) for cells in zip(*lines, strict=True)]
    if header:
        lines[0] = [cell.rstrip() for cell in lines[0]]
    text = ""
    for cells in lines:
        padded = [
            f"{' ' * (width - _width(cell))}{cell}"
            if right and result.rows
            else f"{cell}{' ' * (width - _width(cell))}"
            for right, cell, width in zip(at_right, cells, widths, strict=True)
        ]
        text += "  ".join(padded).rstrip() + "\n"
    return text


def _width(text: str) -> int:
    """How many places of a terminal a text takes: letters of East Asia take two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )


def markdown_table(result: Result, *, header: bool, utc: bool) -> str:
    """A table of GitHub's Markdown; a result without columns as preformatted text."""
    if not result.columns:
        return f"```\n{result.plain.rstrip()}\n```\n" if result.plain else ""
    from tabulate import tabulate

    shown = [index for index, column in enumerate(result.columns) if column.title]
    columns = [result.columns[index] for index in shown]
    rows = [
        [
            text.replace("\\", "\\\\").replace("|", "\\|")
            for text in _texts(columns, tuple(row[index] for index in shown), utc=utc)
        ]
        for row in result.rows
    ]
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
    return "" if value is None else str(value)
