"""`mq offset diff`: compares consumer offsets in files with each other or with a cluster."""

from typing import Annotated

import typer

from mq.cli.commands.offset_files import PLACE, InputFile, Selecting, records_in
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import number, text
from mq.client.operations.offsets.records import GroupQueue, OffsetRecord, Selection

COMMANDS = {"offset": ("offset diff",)}

_COMPARED = (
    *PLACE,
    text("difference", "Difference"),
    number("first", "First"),
    number("second", "Second"),
    number("change", "Change"),
)


@concurrently
@gives(_COMPARED)
@subject("first", "second")
async def offset_diff(
    call: Call,
    first: InputFile,
    second: Annotated[
        str | None,
        typer.Option(
            "--other", metavar="OTHER", help="File to compare with. Default: the cluster now."
        ),
    ] = None,
    *,
    selecting: Selecting,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with status 1 if they differ.")
    ] = False,
) -> Result:
    """Compare the offsets in a file with those in another, or in the cluster.

    It shows each group and queue whose offset differs, or that only one of them has.

    Examples:
        mq offset diff offsets.jsonl  changes since the export
        mq offset diff offsets.jsonl -g billing --exit-code
                                      of one group; status 1 if there are any
    """
    from mq.client.operations.offsets import groups as group_offsets

    if first == second == "-":
        raise UsageError("only one of the files can be standard input")
    selection = selecting.selection()
    before = records_in(call, first)
    failures: list[str] = []
    if second is not None:
        after = records_in(call, second)
    else:
        async with call.admin() as admin:
            expected = {item.key.broker_name: "" for item in before if selection.takes(item.key)}
            after, failures = await group_offsets.gather(admin, selection, None, expected)
    rows = _differences(before, after, selection)
    status = Status.PARTLY if exit_code and rows else Status.DONE
    return Result(_COMPARED, rows, failures=failures, status=status)


def _differences(
    before: list[OffsetRecord], after: list[OffsetRecord], selection: Selection
) -> list[Row]:
    old: dict[GroupQueue, int] = {item.key: item.offset for item in before}
    new: dict[GroupQueue, int] = {item.key: item.offset for item in after}
    rows: list[Row] = []
    for key in sorted(old.keys() | new.keys()):
        first, second = old.get(key), new.get(key)
        if first == second or not selection.takes(key):
            continue
        if first is None or second is None:
            word = "only in second" if first is None else "only in first"
            rows.append((*key, word, first, second, None))
        else:
            rows.append((*key, "changed", first, second, second - first))
    return rows
