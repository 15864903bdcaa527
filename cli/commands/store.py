"""Commands that read a store without a broker: one of ours or of Java's, stopped or copied."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import time_expressions
from mq.cli.machine import offline_store
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, shows_messages
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group
from mq.cli.show import message_text
from mq.cli.show.lazy import Mapped
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import number, text
from mq.client.operations.errors import NotFound
from mq.client.operations.plurals import counted

if TYPE_CHECKING:
    from mq.daemons.broker.store import Record
    from mq.daemons.broker.store.tools import OfflineLog, OpenFiles
    from mq.protocol.message import StoredMessage

COMMANDS = {
    "store": (
        "store inspect",
        "store dump",
    )
}

_PARTS = (
    text("part", "Part"),
    number("files", "Files"),
    number("bytes", "Bytes"),
    number("minOffset", "From"),
    number("maxOffset", "To"),
    text("note", "Note"),
)
_QUEUES = (
    text("topic", "Topic"),
    number("queueId", "Queue"),
    number("minOffset", "Min offset"),
    number("maxOffset", "Max offset"),
    number("entries", "Messages"),
    number("physicalMin", "Log from"),
    number("physicalMax", "Log to"),
)
_PER_RESULT = 100  # messages


@gives(_PARTS, _QUEUES, message_text.COLUMNS, data=message_text.DOCUMENT)
@shows_messages
def store_inspect(
    call: Call,
    directory: offline_store.Directory,
    topic: offline_store.Topic = None,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="OFFSET", help="Show the message at this offset of the log."),
    ] = None,
) -> Result:
    """Show what is in a store on the disk, without a broker.

    It shows the parts with their sizes; with -t the queues of a topic ('*' for all); with --at one
    message. DIR may be the parent of a single store, as of `mq standalone --store`. Nothing is
    changed, and a broker may run.

    Examples:
        mq store inspect ~/store            parts of a store and their sizes
        mq store inspect ~/store -t Orders  the queues of a topic
        mq store inspect ~/store --at 0     the first message
    """
    root = offline_store.root_of(call, directory)
    with offline_store.log_of(root) as log:
        if at is not None:
            record = log.record_at(at)
            if record is None:
                raise NotFound(
                    f"no complete message starts at {at}", hint=f"see: mq store verify {root}"
                )
            return offline_store.messages([offline_store.decoded(log.raw(record))])
        if topic is not None:
            return _queues(root, log.opened, topic)
        return _parts(root, log)


def _parts(root: Path, log: "OfflineLog") -> Result:
    from mq.daemons.broker.store import Checkpoint, is_in_use, layout
    from mq.daemons.broker.store.tools import index_files, read_queues

    files = log.files
    end = max((file.start + file.data_end for file in files), default=0)
    queues = list(read_queues(root, log.opened))
    topics = len({queue.topic for queue in queues})
    checkpoint = Checkpoint(root / layout.CHECKPOINT_FILE)
    checkpoint.load()
    safe = f", on disk up to {checkpoint.safe_offset}" if checkpoint.safe_offset else ""
    state = "a broker runs on it" if is_in_use(root) else "no broker runs on it"
    if (root / layout.ABORT_FILE).exists() and not is_in_use(root):
        state += ", and the last one did not stop cleanly"
    index = index_files(root)
    config = sorted(layout.config_path(root).glob("*.json"))
    rows: list[Row] = [
        ("commitlog", len(files), log.data_size, log.minimum, end, state),
        (
            "consumequeue",
            sum(len(queue.files) for queue in queues),
            sum(file.data_end for queue in queues for file in queue.files),
            None,
            None,
            f"{counted(len(queues), 'queue')} of {counted(topics, 'topic')}",
        ),
        ("index", len(index), sum(_allocated(path) for path in index), None, None, ""),
        (
            "checkpoint",
            int((root / layout.CHECKPOINT_FILE).exists()),
            None,
            None,
            None,
            f"log flushed until {_moment(checkpoint.message_timestamp)}, "
            f"queues until {_moment(checkpoint.queue_timestamp)}{safe}",
        ),
        (
            "config",
            len(config),
            sum(path.stat().st_size for path in config),
            None,
            None,
            ", ".join(path.stem for path in config),
        ),
    ]
    return Result(_PARTS, rows)


def _allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def _moment(milliseconds: int) -> str:
    from mq.cli.show.times import iso

    return iso(milliseconds) or "never"


def _queues(root: Path, opened: "OpenFiles", pattern: str) -> Result:
    from fnmatch import fnmatchcase

    from mq.daemons.broker.store.tools import read_queues

    rows: list[Row] = []
    for queue in read_queues(root, opened):
        if not fnmatchcase(queue.topic, pattern):
            continue
        first: tuple[int, int, int] | None = None
        last = (0, 0, 0)
        count = 0
        for entry in queue.live(0):
            first = first or entry
            last = entry
            count += 1
        begin = first[0] if first else queue.begin
        physical = (first[1], last[1] + last[2]) if first else (None, None)
        rows.append((queue.topic, queue.queue_id, begin, queue.end, count, *physical))
    if not rows:
        offline_store.nothing_of(pattern)
    return Result(_QUEUES, rows)


@option_group
class LogFilter:
    """Filters and limits for the messages of a log."""

    topic: offline_store.Topic = None
    queue_id: Annotated[
        int | None, typer.Option("-q", "--queueId", metavar="ID", help="Only this queue.")
    ] = None
    begin: Annotated[
        str | None,
        typer.Option("-b", "--begin", metavar="TIME", help=f"Start: {time_expressions.FORMS}."),
    ] = None
    end: Annotated[str | None, typer.Option("-e", "--end", metavar="TIME", help="End.")] = None
    offset: Annotated[
        int, typer.Option("--from", metavar="OFFSET", help="Start at this offset of the log.")
    ] = 0
    limit: Annotated[
        int | None, typer.Option("-m", "--limit", metavar="N", help="At most N messages.")
    ] = None
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Include half messages of transactions.")
    ] = False

    def chooser(self, now: float) -> "Callable[[Record], bool]":
        """Return a filter for all options but --from and --limit; `now` is in seconds.

        Raises UsageError for an invalid time.
        """
        first = time_expressions.parse(self.begin, "-b", now) if self.begin else 0
        last = time_expressions.parse(self.end, "-e", now) if self.end else 1 << 62
        return lambda record: (
            first <= record.store_timestamp <= last
            and (self.everything or record.is_queued)
            and (self.topic is None or _fits(record.topic, self.topic))
            and self.queue_id in (None, record.queue_id)
        )


@gives(message_text.COLUMNS, data=message_text.DOCUMENT)
@shows_messages
async def store_dump(
    call: Call,
    directory: offline_store.Directory,
    *,
    wanted: LogFilter,
) -> AsyncIterator[Result]:
    r"""Print the messages of a store in the order of its log, without a broker.

    Damaged places are reported on standard error and skipped; the exit status is then 1. TOPIC may
    be a pattern. Nothing is changed, and a broker may run.

    Examples:
        mq store dump ~/store -t Orders -m 10        ten messages of a topic
        mq store dump ~/store --format '%t %k %b\n'  topic, key and body of each
    """
    from mq.daemons.broker.store.tools import Hole, read_queues

    is_wanted = wanted.chooser(call.environment.clock())
    topic, limit = wanted.topic, wanted.limit
    if limit is not None and limit < 1:
        raise UsageError(f"-m/--limit: {limit} messages", hint="must be 1 or more")
    root = offline_store.root_of(call, directory)
    with offline_store.log_of(root) as log:
        queues = read_queues(root, log.opened)
        if topic is not None and not any(_fits(queue.topic, topic) for queue in queues):
            offline_store.nothing_of(topic)

        def read(record: "Record") -> "StoredMessage":  # read lazily: many messages are large
            return offline_store.decoded(log.raw(record))

        found: list[Record] = []
        left = limit if limit is not None else -1
        for item in log.walk(wanted.offset):
            if isinstance(item, Hole):
                place = f"{item.path}: {item.size} bytes at {item.offset} skipped: {item.why}"
                yield Result(message_text.COLUMNS, failures=[place], messages=[])
                continue
            if not is_wanted(item):
                continue
            found.append(item)
            left -= 1
            if len(found) >= _PER_RESULT or not left:
                yield offline_store.messages(Mapped(read, found))
                found = []
            if not left:
                return
        if found:
            yield offline_store.messages(Mapped(read, found))


def _fits(topic: str, pattern: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(topic, pattern)
