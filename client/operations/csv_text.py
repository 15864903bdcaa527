"""CSV that every reader reads back, whatever is in a field."""

import csv
from collections.abc import Iterable, Sequence
from typing import Any

_END = "\r\n"  # of a row for the writer, which quotes fields that have a character of it


class _Rows(list[str]):
    """Takes what a csv.writer writes: a row at a time."""

    def write(self, row: str) -> None:
        self.append(row.removesuffix(_END) + "\n")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """A line for each row; a carriage return within a field is quoted as a line feed is."""
    lines = _Rows()
    csv.writer(lines, lineterminator=_END).writerows(rows)
    return "".join(lines)
