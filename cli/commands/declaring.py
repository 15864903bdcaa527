"""Topics, groups and accounts that a file declares."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import inputs
from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import again
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.options import subject
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.client.operations import local_files
from mq.client.operations.columns import number, text

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.operations.declared.comparison import Comparison, ConfigChange

COMMANDS = {
    "topic": (
        "topic plan",
        "apply",
    )
}

File = Annotated[
    str,
    typer.Option(
        "-f", "--file", metavar="FILE", help="File that declares them; -: standard input."
    ),
]

_COLUMNS = (
    text("action", "Action"),
    text("kind", "Kind"),
    text("name", "Name"),
    text("brokerName", "Broker"),
    text("brokerAddr", ""),
    text("change", "Change"),
)
_TOTALS = (
    number("create", "Things to create"),
    number("change", "Things to change"),
)


@gives(_COLUMNS, totals=_TOTALS)
@subject("file")
async def topic_plan(call: Call, file: File) -> Result:
    """Compare topics, groups and accounts with what a file declares.

    It changes nothing. The exit status is 1 if there are differences. The file is YAML: topics,
    groups and accounts by name, each with the settings to compare. Others are left alone.

    Examples:
        mq topic plan topics.yaml              what mq apply would change
        mq topic plan topics.yaml -o markdown  for a merge request
    """
    async with call.admin() as admin:
        comparison, changes = await _compare(call, admin, file)
    result = _result(changes, comparison.failures)
    if changes:
        result.status = Status.PARTLY
    return result


@gives(_COLUMNS, totals=_TOTALS)
@writes
@subject("file")
@again("finished changes stay, and are not repeated")
async def apply(call: Call, file: File) -> Result:
    """Create and change topics, groups and accounts as a file declares.

    It creates what is missing and changes what differs, broker by broker. It leaves alone what the
    file does not name, and deletes nothing. The secret key of an account is set when the account is
    created; that of an existing account cannot be compared and stays. A second run changes nothing.
    To check first, use `mq topic plan` or --dry-run.

    Examples:
        mq apply topics.yaml            apply the file
        mq apply topics.yaml --dry-run  show the requests, send none
    """
    from mq.client.errors import MQError
    from mq.client.operations.declared.comparison import bring_about

    async with call.admin() as admin:
        comparison, changes = await _compare(call, admin, file)
        # Check before the first change: a missing secret must not leave half of it done.
        secrets = [_secret(call, change) for change in changes]
        done = []
        failures = list(comparison.failures)
        for change, secret in zip(changes, secrets, strict=True):
            try:
                await bring_about(admin, change, secret)
            except MQError as error:
                failures.append(f"{change.declared.kind} {change.declared.name}: {error}")
            else:
                done.append(change)
    return _result(done, failures)


async def _compare(
    call: Call, admin: "Admin", file: str
) -> "tuple[Comparison, list[ConfigChange]]":
    from mq.client.operations.declared.comparison import Comparison
    from mq.client.operations.declared.document import read

    document = read(Path(inputs.called(file)), inputs.content(call.environment, file))
    comparison = Comparison(admin)
    return comparison, await comparison.changes(document)


def _secret(call: Call, change: "ConfigChange") -> str | None:
    """Return the secret key of an account to create. Raises CommandError if there is none."""
    declared = change.declared
    if declared.kind != "account" or not change.new:
        return None
    if declared.secret_variable:
        found = call.environment.variables.get(declared.secret_variable, "")
    elif declared.secret_file:
        found = local_files.read(Path(declared.secret_file)).decode("utf-8", "replace").strip()
    else:
        found = ""
    if not found:
        raise CommandError(
            f"account {declared.name} does not exist yet and has no secret key",
            hint="write secretKeyEnv: VARIABLE or secretKeyFile: FILE, and set it",
            status=Status.CONFIG,
        )
    return found


def _result(changes: "list[ConfigChange]", failures: list[str]) -> Result:
    rows: list[Row] = [
        (
            "create" if change.new else "change",
            change.declared.kind,
            change.declared.name,
            change.broker,
            change.address,
            change.differences,
        )
        for change in changes
    ]
    created = sum(change.new for change in changes)
    totals = {"create": created, "change": len(changes) - created}
    return Result(_COLUMNS, rows, totals=totals, failures=failures)
