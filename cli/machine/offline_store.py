"""Common code of commands on offline stores: their log, and messages as results."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import topic_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.errors import UsageError
from mq.cli.show import bodies, message_text
from mq.cli.show.result import Result
from mq.client.operations.errors import NotFound
from mq.client.operations.messages.unpacking import Unpacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mq.daemons.broker.store.tools import OfflineLog
    from mq.protocol.message import StoredMessage

Directory = Annotated[
    str,
    typer.Argument(
        metavar="DIR", help="Directory of the store (storePathRootDir), or a parent directory."
    ),
]
Topic = Annotated[str | None, topic_option("Only this topic.")]

_MAX_DEPTH = 3  # levels searched for stores; standalone and clusters keep them one or two below
_MAX_FOLDERS = 10_000  # directories searched: a search of / must end


def root_of(call: Call, directory: str) -> Path:
    """Return the store's directory: the given one, or the only store below it, which is reported.

    Raises NotFound if there is none, and UsageError if there are several.
    """
    given = Path(directory)
    if _is_store(given):
        return given
    if not given.is_dir():
        raise NotFound(f"no directory {given}", hint=_NAMED)
    if given.name == _log_name() and _is_store(given.parent):
        found = [given.parent]
    else:
        found = sorted(_below(given))
    if not found:
        raise NotFound(
            f"{given} is not a store: neither it nor a directory below it has {_log_name()}",
            hint=_NAMED,
        )
    if len(found) > 1:
        raise UsageError(
            f"{given} contains {len(found)} stores", hint=f"name one: {', '.join(map(str, found))}"
        )
    call.environment.report(f"mq {call.name}: the store is {found[0]}")
    return found[0]


_NAMED = "give the directory of storePathRootDir"


def _log_name() -> str:
    from mq.daemons.broker.store import layout

    return layout.commit_log_path(Path()).name


def _is_store(root: Path) -> bool:
    from mq.daemons.broker.store import layout

    return layout.commit_log_path(root).is_dir()


def _below(folder: Path) -> Iterator[Path]:
    left = _MAX_FOLDERS
    for place, folders, _ in os.walk(folder):
        path = Path(place)
        left -= 1
        if path != folder and _is_store(path):
            yield path
            folders.clear()
        elif left <= 0 or len(path.relative_to(folder).parts) >= _MAX_DEPTH:
            folders.clear()


def nothing_of(pattern: str) -> None:
    """Raise NotFound for a topic that the store does not have; a pattern may match none."""
    if not any(letter in pattern for letter in "*?["):
        raise NotFound(f"no queue of topic {pattern}", hint="list all: -t '*'")


@contextmanager
def log_of(root: Path) -> Iterator["OfflineLog"]:
    """Open the log of a store."""
    from mq.daemons.broker.store import layout
    from mq.daemons.broker.store.tools import OfflineLog

    with OfflineLog([layout.commit_log_path(root)]) as log:
        yield log


def decoded(raw: bytes) -> "StoredMessage":
    """Decode a record of the log; the body stays compressed."""
    from mq.protocol.message import decode_record

    return decode_record(raw, decompress=False)


def messages(found: "Sequence[StoredMessage]") -> Result:
    """Return the result of messages, one line each in plain text. Bodies are not decompressed."""
    return message_text.result(
        Unpacked(found),
        lambda message: message_text.line(message, {}, bodies.decoded(message.body, "utf-8")),
    )
