"""Commands about this command: `mq manual`, `mq shell`."""

from pathlib import Path
from typing import Annotated

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.env import Environment
from mq.cli.runtime.errors import UsageError
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import flag, text

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

    They are generated from the declarations of the commands. Unchanged files are not written; pages
    of removed commands are deleted.

    Examples:
        mq manual --dry-run      pages that would be written
        mq manual --directory .  write all files
    """
    from mq.cli.manual.files import files
    from mq.client.operations import local_files

    root = Path(directory)
    if not root.is_dir():
        raise UsageError(f"--directory {directory}: no such directory")
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

    At a terminal it has history and completion, and shows the exit status of failed commands;
    `exit` or Ctrl-D ends it. From a pipe or a file it runs one command per line (mq shell <
    commands); the exit status is 0 if all succeeded, else 1. A line is what follows `mq`, with the
    quoting of sh; # starts a comment. Lines with secrets, or with a leading space, are not kept in
    the history.

    Examples:
        mq shell                        a prompt with history and completion
        mq shell --stop < commands.txt  one command per line, until one fails
    """
    from mq.cli.shell import start

    return start(environment, stop=stop)
