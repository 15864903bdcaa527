"""Commands about this command: `mq manual`, `mq shell`, `mq help`."""

from pathlib import Path
from typing import Annotated

import typer

from mq.cli.call import Call
from mq.cli.effects import gives, writes
from mq.cli.errors import UsageError
from mq.cli.result import Result, Row, flag, text

_FILES = (text("path", "File"), flag("changed", "Changed"))


@gives(_FILES)
@writes
def manual(
    call: Call,
    directory: Annotated[
        str,
        typer.Option("--directory", metavar="DIR", help="Folder of the project."),
    ] = ".",
) -> Result:
    """Write the man pages, the completions and the description of the JSON.

    They are made from the declarations of the commands. A file that is right already is left alone;
    a page of a command that is gone is removed.
    """
    from mq.cli import local_files
    from mq.cli.manual.files import files

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
