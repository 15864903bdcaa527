"""JSON files of the export commands, in a directory; `-` prints them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.show.output import Format
from mq.cli.show.result import Result
from mq.client.operations import local_files
from mq.client.operations.columns import number, text

FilePath = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--filePath",
        metavar="FOLDER",
        help="Directory to write to; -: print it. Default: /tmp/rocketmq/export.",
    ),
]
COLUMNS = (text("file", "File"), number("size", "Bytes"))
PRINTED = "with `-f -` the object that the file would hold, else the rows"


def export(
    call: Call, folder: str | None, name: str, document: Any, failures: list[str], end: str = ""
) -> Result:
    """Write `document` to the file `name` in `folder`; `end` ends the plain output.

    The layout is that of fastjson's pretty printer. The file is replaced atomically. Raises
    CommandError.
    """
    from mq.protocol import fastjson

    content = fastjson.dumps_pretty(document)
    if folder == "-":
        whole = document if call.output in (Format.JSON, Format.YAML) else None
        return Result(plain=content.decode() + "\n", data=whole, failures=failures)
    path = f"{folder or call.environment.state_directory / 'export'}/{name}"
    if call.dry_run:
        call.would("write", path, f"{len(content)} bytes")
    else:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise local_files.cannot("write", path, error) from error
        local_files.replace(Path(path), content)
    return Result(COLUMNS, [(path, len(content))], f"export {path} success{end}", failures=failures)
