"""Progress of long work: a bar on the standard error of a terminal, nothing in a pipe.

    with progress(call.environment, "exporting", total=count, unit="messages") as step:
        for batch in batches:
            write(batch)
            step(len(batch))

`step(n)` adds finished work, `step(n, "broker-a:3")` also shows a note. Without a terminal it costs
almost nothing; a terminal is redrawn at most ten times a second.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from mq.cli.runtime.env import Environment
from mq.cli.runtime.interruption import cursor_back, giving_back, whole
from mq.cli.show.visible import visible

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from mq.client.operations.progress import Progress


class Step(Protocol):
    """Reports more finished work."""

    def __call__(self, done: int = 1, note: str = "", /) -> None: ...


@contextmanager
def progress(
    environment: Environment, what: str, *, total: int | None = None, unit: str = ""
) -> Iterator[Step]:
    """Show the progress of `what`; without `total` only the amount and speed.

    `unit` is the unit of the count; "bytes" are shown in kB, MB and so on.
    """
    if not environment.error_terminal:
        yield _silent
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    console = Console(
        file=environment.stderr,
        force_terminal=True,
        width=environment.columns,
        no_color=bool(environment.variables.get("NO_COLOR")),
        highlight=False,
    )
    columns = _columns(unit, known=total is not None)
    with (
        giving_back(lambda: cursor_back(environment.stderr)),
        whole(Bars(*columns, console=console, transient=True, refresh_per_second=10)) as bar,
    ):
        task = bar.add_task(what, total=total, note="", unit=unit)

        def step(done: int = 1, note: str = "", /) -> None:
            if note:
                bar.update(task, advance=done, note=visible(note))
            else:
                bar.advance(task, done)

        yield step


def of_messages(environment: Environment, what: str) -> "Progress":
    """Return the progress of an operation that counts messages."""
    return lambda total: progress(environment, what, total=total, unit="messages")


def _silent(done: int = 1, note: str = "", /) -> None:
    pass


def _columns(unit: str, *, known: bool) -> list["ProgressColumn"]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Task as RichTask
    from rich.text import Text

    class Speed(ProgressColumn):
        """Units per second."""

        def render(self, task: RichTask) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s")

    counted: list[ProgressColumn] = (
        [DownloadColumn(), TransferSpeedColumn()]
        if unit == "bytes"
        else [
            TextColumn("{task.completed:,}/{task.total:,}" if known else "{task.completed:,}"),
            TextColumn("{task.fields[unit]}"),
            Speed(),
        ]
    )
    bar: list[ProgressColumn] = [BarColumn()] if known else []
    left = TimeRemainingColumn() if known else TimeElapsedColumn()
    return [
        TextColumn("{task.description}", markup=False),
        *bar,
        *counted,
        left,
        TextColumn("{task.fields[note]}", markup=False),
    ]
