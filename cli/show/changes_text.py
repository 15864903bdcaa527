"""The output of `--dry-run`: the changes that were not made."""

from mq.cli.show.result import Result, Row
from mq.client.operations.changes import Changes, PlannedChange
from mq.client.operations.columns import nested, number, text

COLUMNS = (
    number("step", "Step"),
    text("target", "Where"),
    text("request", "What"),
    text("header", "Fields"),
    text("body", "Body"),
)

DATA = (
    number("step", "position in the order of changes, from 1"),
    text("target", "address of the broker or name server, or path of the file"),
    text("request", "name of the request, or the change to the file"),
    number("code", "number of the request; null for a file"),
    nested("header", "fields of the request by name, secrets masked"),
    nested("body", "body of the request as JSON, else text, else base64; null without a body"),
)


def result(changes: Changes, failures: list[str] | None = None) -> Result:
    """Return the result with all changes; `failures` are parts that would not be done."""
    rows: list[Row] = []
    data = []
    plain = ""
    for step, change in enumerate(changes.kept, 1):
        fields = "\n".join(f"{name}={value}" for name, value in change.header.items())
        rows.append((step, change.target, change.request, fields, change.body_text))
        data.append(
            {
                "step": step,
                "target": change.target,
                "request": change.request,
                "code": change.code,
                "header": change.header,
                "body": change.body,
            }
        )
        plain += _plain(change)
    total = changes.counts.total()
    if total > len(changes.kept):
        plain += "".join(f"{name}: {count} in total\n" for name, count in changes.counts.items())
    plain += "dry run: nothing was changed\n"
    notes = ["dry run: nothing was changed"]
    totals = {"changes": total}
    return Result(COLUMNS, rows, plain, totals, failures or [], data=data, notes=notes)


def _plain(change: PlannedChange) -> str:
    code = "" if change.code is None else f" ({change.code})"
    lines = [f"{change.request}{code} {'at' if change.code is None else 'to'} {change.target}"]
    lines += [f"  {name} = {value}" for name, value in change.header.items()]
    lines += [f"  {line}" for line in change.body_text.splitlines()]
    return "\n".join(lines) + "\n"
