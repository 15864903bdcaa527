"""Examples to copy: `mq cheat`."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from mq.cli import catalog
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.errors import UsageError
from mq.cli.show.output import Format
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import text

COMMANDS = {"tool": ("cheat",)}

# Other names of subjects, by the group of commands that they belong to.
_SUBJECTS = {
    "accounts": "acl",
    "brokers": "broker",
    "clients": "connection",
    "contexts": "context",
    "daemons": "daemon",
    "jobs": "spark",
    "letters": "dlq",
    "policies": "auth",
    "replication": "ha",
    "stores": "store",
    "users": "auth",
}

_COLUMNS = (
    text("subject", "Subject"),
    text("command", "Command"),
    text("example", "Example"),
    text("description", "What it does"),
)


@gives(_COLUMNS)
def cheat(
    call: Call,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBJECT", help="Subject or command, such as topic, group, dlq, store or tail."
        ),
    ] = None,
) -> Result:
    """Show examples of commands, to copy.

    They are those of a subject, or without one the first example of every command: the examples of
    `mq COMMAND --help`. Each of them is run by mq's tests.

    Examples:
        mq cheat group              examples for consumer groups
        mq cheat                    an example of every command
        mq cheat dlq -o markdown    for a page of your own
    """
    chosen = [_of_subject(subject)] if subject else list(catalog.GROUPS.items())
    rows = [row for group, names in chosen for row in _rows(group, names, whole=bool(subject))]
    if call.output in (Format.TABLE, Format.PLAIN) and not call.view.chosen:
        return Result(plain=_page(rows, call.environment.columns))
    return Result(_COLUMNS, rows)


def _of_subject(subject: str) -> tuple[str, Iterable[str]]:
    """Return the group of commands of a subject, and all commands about it; or one command."""
    folded = subject.lower()
    command = catalog.find(subject.split())
    group = catalog.group_of(folded) or catalog.group_of(_SUBJECTS.get(folded, ""))
    if group is None and command is not None:
        return command[0], command[1:2]
    group = group or catalog.group_of(folded.rstrip("s"))
    if group is None:
        from difflib import get_close_matches

        known = ["group", *catalog.GROUPS, *_SUBJECTS]
        near = get_close_matches(folded, known, 2, 0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"subjects: {', '.join(known)}"
        raise UsageError(f"no subject {subject!r}", hint=hint)
    # `mq group seek` is a command about offsets that users look up under groups.
    aliases = catalog.subcommands("group" if group == "consumer" else group)
    others = [catalog.BY_NAME[catalog.key_of(alias)][1] for alias in aliases]
    itself = command[1:2] if command else ()  # `mq broker` is a command
    return group, dict.fromkeys([*catalog.GROUPS[group], *others, *itself])


def _rows(group: str, names: Iterable[str], *, whole: bool) -> Iterator[Row]:
    from importlib import import_module

    from mq.cli.manual.examples import of

    for name in names:
        module = import_module(f"mq.cli.commands.{catalog.module_name(name)}")
        examples = of(getattr(module, catalog.function_name(name)))
        for command, words in examples if whole else examples[:1]:
            yield catalog.TITLES[group], name, command, words


def _page(rows: list[Row], width: int) -> str:
    from mq.cli.manual.examples import Example, laid_out

    lines: list[str] = []
    for subject in dict.fromkeys(row[0] for row in rows):
        shown = [Example(row[2], row[3]) for row in rows if row[0] == subject]
        lines += ["", f"{subject}:", *(f"  {line}" for line in laid_out(shown, width - 2))]
    return "\n".join([*lines[1:], ""])
