"""Commands about this command: `mq manual`, `mq shell`, `mq help`."""

from pathlib import Path
from typing import Annotated

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import UsageError
from mq.cli.show.result import Result, Row, flag, text

COMMANDS = {
    "tool": (
        "shell",
        "manual",
    )
}

_FILES = (text("path", "File"), flag("changed", "Changed"))


@gives(_FILES)
@writes
def manual(
    call: Call,
    directory: Annotated[
        str,
        typer.Option(
            "--directory", metavar="DIR", help="Directory of the project. Default: this one."
        ),
    ] = ".",
) -> Result:
    """Write the man pages, the completions and the description of the JSON.

    They are made from the declarations of the commands. A file that is right already is left alone;
    a page of a command that is gone is removed.

    Examples:
        mq manual --dry-run      pages that would be written
        mq manual --directory .  write all of it
    """
    from mq.cli.manual.files import files
    from mq.client.operations import local_files

    root = Path(directory)
    if not root.is_dir():
        raise UsageError(f"--directory {directory}: no such folder")
    made = dict(files())
    rows: list[Row] = []
    for name, content in made.items():
        path = root / name
        changed = not path.exists() or path.read_text("utf-8") != content
        rows.append((name, changed))
        if changed and call.dry_run:
            call.would("write", path)
        elif changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            local_files.replace(path, content.encode())
    for path in sorted((root / "man").glob("mq*.[0-9]")):
        name = f"man/{path.name}"
        if name not in made:
            rows.append((name, True))
            if call.dry_run:
                call.would("remove", path)
            else:
                path.unlink()
    return Result(_FILES, rows)


def shell(
    environment: Environment,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop at the first command that fails, with its status.")
    ] = False,
) -> int:
    """Run many commands in one process.

    At a terminal it has history and completion, and shows the status of a command that failed;
    `exit` or Ctrl-D ends it. From a pipe or a file it runs a command per line: `mq shell <
    commands`. Then the status is 0 if all were done and 1 if some were not. A line is written as
    after `mq`, with the quotes of sh; # begins a comment. Lines that name secrets, or begin with a
    blank, are not kept in the history.

    Examples:
        mq shell                        a prompt with history and completion
        mq shell --stop < commands.txt  a command per line, until one fails
    """
    from mq.cli.shell import start

    return start(environment, stop=stop)
