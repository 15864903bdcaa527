"""CSV that every reader parses correctly, whatever a field contains."""

import csv
from collections.abc import Iterable, Sequence
from typing import Any

_END = "\r\n"  # the writer's row end; it quotes fields that contain one of these characters


class _Rows(list[str]):
    """Receives the output of a csv.writer, one row at a time."""

    def write(self, row: str) -> None:
        self.append(row.removesuffix(_END) + "\n")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return one line per row; a carriage return within a field is quoted like a line feed."""
    lines = _Rows()
    csv.writer(lines, lineterminator=_END).writerows(rows)
    return "".join(lines)
