"""What the commands on a store without a broker share: its log, and messages of it as a result."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import topic_option
from mq.cli.show import message_text
from mq.cli.show.result import Result
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.daemons.broker.store.offline import OfflineLog
    from mq.protocol.message import StoredMessage

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="Directory of the store (storePathRootDir).")
]
Topic = Annotated[str | None, topic_option("Only this topic.")]


@contextmanager
def log_of(directory: str) -> Iterator[tuple[Path, "OfflineLog"]]:
    """The root of a store, and its log. Raises NotFound for a folder that is no store."""
    from mq.daemons.broker.store import layout
    from mq.daemons.broker.store.offline import OfflineLog

    root = Path(directory)
    folder = layout.commit_log_path(root)
    if not folder.is_dir():
        raise NotFound(
            f"{root} is not a store: it has no folder {folder.name}",
            hint="name the folder that storePathRootDir names",
        )
    with OfflineLog([folder]) as log:
        yield root, log


def decoded(raw: bytes) -> "StoredMessage":
    """A record of the log."""
    from mq.protocol.message import decode_record

    return decode_record(raw)


def messages(found: "list[StoredMessage]") -> Result:
    """Messages as they are shown: a line each in plain text."""
    plain = "".join(
        message_text.line(message, {}, bytes(message.body).decode("utf-8", "replace"))
        for message in found
    )
    rows = [message_text.row(message) for message in found]
    data = [message_text.document(message) for message in found]
    return Result(message_text.COLUMNS, rows, plain, data=data, messages=found)
