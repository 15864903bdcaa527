"""What the commands on a store without a broker share: its log, and messages of it as a result."""

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

    from mq.daemons.broker.store.offline import OfflineLog
    from mq.protocol.message import StoredMessage

Directory = Annotated[
    str,
    typer.Argument(
        metavar="DIR", help="Directory of the store (storePathRootDir), or one above it."
    ),
]
Topic = Annotated[str | None, topic_option("Only this topic.")]

_DEPTH = 3  # of a store below what standalone, or a cluster of brokers, keeps all in
_MOST_FOLDERS = 10_000  # that are looked into: / is no folder above one store


def root_of(call: Call, directory: str) -> Path:
    """The store that is meant: the folder itself, or the only one that is below it, which is told.

    Raises NotFound where there is none, and UsageError where there are several.
    """
    given = Path(directory)
    if _is_store(given):
        return given
    if not given.is_dir():
        raise NotFound(f"there is no folder {given}", hint=_NAMED)
    if given.name == _log_name() and _is_store(given.parent):
        found = [given.parent]
    else:
        found = sorted(_below(given))
    if not found:
        raise NotFound(
            f"{given} is not a store: it has no folder {_log_name()}, nor has one below it",
            hint=_NAMED,
        )
    if len(found) > 1:
        raise UsageError(
            f"{given} has {len(found)} stores in it", hint=f"name one: {', '.join(map(str, found))}"
        )
    call.environment.tell(f"mq {call.name}: the store is {found[0]}")
    return found[0]


_NAMED = "name the folder that storePathRootDir names"


def _log_name() -> str:
    from mq.daemons.broker.store import layout

    return layout.commit_log_path(Path()).name


def _is_store(root: Path) -> bool:
    from mq.daemons.broker.store import layout

    return layout.commit_log_path(root).is_dir()


def _below(folder: Path) -> Iterator[Path]:
    left = _MOST_FOLDERS
    for place, folders, _ in os.walk(folder):
        path = Path(place)
        left -= 1
        if path != folder and _is_store(path):
            yield path
            folders.clear()
        elif left <= 0 or len(path.relative_to(folder).parts) >= _DEPTH:
            folders.clear()


def nothing_of(pattern: str) -> None:
    """Raises NotFound for a topic of which a store has nothing; a pattern may well match none."""
    if not any(letter in pattern for letter in "*?["):
        raise NotFound(f"no queue of topic {pattern}", hint="all there are: -t '*'")


@contextmanager
def log_of(root: Path) -> Iterator["OfflineLog"]:
    """The log of a store."""
    from mq.daemons.broker.store import layout
    from mq.daemons.broker.store.offline import OfflineLog

    with OfflineLog([layout.commit_log_path(root)]) as log:
        yield log


def decoded(raw: bytes) -> "StoredMessage":
    """A record of the log, with its body as it is stored."""
    from mq.protocol.message import decode_record

    return decode_record(raw, decompress=False)


def messages(found: "Sequence[StoredMessage]") -> Result:
    """Messages as they are shown: a line each in plain text. Their bodies are as they are
    stored."""
    return message_text.result(
        Unpacked(found),
        lambda message: message_text.line(message, {}, bodies.decoded(message.body, "utf-8")),
    )
