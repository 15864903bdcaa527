"""Pages of several parts, facts and tables, in each format for users."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mq.cli.show.result import Part, Result
from mq.cli.show.tables import cell_text, markdown_table, plain_table, rich_table
from mq.cli.show.visible import visible

if TYPE_CHECKING:
    from rich.console import Console


def print_parts(console: "Console", parts: Iterable[Part], *, header: bool, utc: bool) -> None:
    """Print the parts at a terminal."""
    from rich.text import Text

    for place, part in enumerate(parts):
        if place:
            console.print()
        console.print(Text(visible(part.title), style="bold"))
        for line in _fact_lines(part, utc=utc):
            console.print(visible(line), soft_wrap=True)
        if part.rows:
            console.print(rich_table(part.columns, part.rows, header=header, utc=utc), end="")
        for note in part.notes:
            console.print(visible(note), soft_wrap=True)


def plain(parts: Iterable[Part], *, header: bool, utc: bool) -> str:
    """Return titles, facts and columns without frames."""
    blocks = []
    for part in parts:
        text = f"{part.title}\n" + "".join(f"{line}\n" for line in _fact_lines(part, utc=utc))
        if part.rows:
            text += "".join(plain_table(Result(part.columns, part.rows), header=header, utc=utc))
        blocks.append(text + "".join(f"{note}\n" for note in part.notes))
    return "\n".join(blocks)


def markdown(parts: Iterable[Part], *, header: bool, utc: bool) -> str:
    """Return headings, lists and tables."""
    blocks = []
    for part in parts:
        text = f"### {part.title}\n\n"
        text += "".join(f"- **{name}**: {value}\n" for name, value in _facts(part, utc=utc))
        if part.rows:
            text += markdown_table(Result(part.columns, part.rows), header=header, utc=utc)
        blocks.append(text + "".join(f"- {note}\n" for note in part.notes))
    return "\n".join(blocks)


def _facts(part: Part, *, utc: bool) -> list[tuple[str, str]]:
    return [
        (column.title, cell_text(column.kind, value, utc=utc))
        for column, value in part.facts
        if value is not None
    ]


def _fact_lines(part: Part, *, utc: bool) -> list[str]:
    facts = _facts(part, utc=utc)
    width = max((len(name) for name, _ in facts), default=0)
    return [f"  {name:<{width}}  {value}" for name, value in facts]
