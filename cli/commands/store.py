"""Looking into a store without a broker: one of ours or of Java's, stopped or copied."""

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import message_text, moments
from mq.cli.call import Call
from mq.cli.effects import gives, shows_messages, writes
from mq.cli.errors import CommandError, NotFound, UsageError
from mq.cli.parameters import topic_option
from mq.cli.result import Result, Row, number, text
from mq.cli.runner import concurrently
from mq.cli.status import Status

if TYPE_CHECKING:
    from mq.daemons.broker.store.offline import OfflineLog
    from mq.daemons.broker.store.verification import Verified
    from mq.daemons.broker.store_config import MessageStoreConfig
    from mq.protocol.message import StoredMessage

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="The store: what storePathRootDir names.")
]
Topic = Annotated[str | None, topic_option("Of this topic only.")]

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
    number("physicalMin", "In the log from"),
    number("physicalMax", "to"),
)
_PROBLEMS = (
    text("part", "Part"),
    text("path", "Where"),
    number("offset", "Offset"),
    number("lostBytes", "Lost bytes"),
    text("why", "Why"),
)
_REPAIRS = (
    text("path", "Where"),
    number("offset", "Offset"),
    number("bytes", "Bytes"),
    text("repair", "Repair"),
)
_PER_RESULT = 100  # messages
_CHECKED = (
    number("records", "Records in the log"),
    number("recordBytes", "Their bytes"),
    number("queues", "Queues"),
    number("entries", "Entries of queues that point at a message"),
    number("indexItems", "Items of the index"),
    number("ofDeletedTopics", "Messages whose topic is no more"),
    number("problems", "Problems"),
    number("lostBytes", "Bytes of the log that are no records"),
)


@contextmanager
def _log_of(directory: str) -> Iterator[tuple[Path, "OfflineLog"]]:
    from mq.daemons.broker.store import layout
    from mq.daemons.broker.store.offline import OfflineLog

    root = Path(directory)
    folder = layout.commit_log_path(root)
    if not folder.is_dir():
        raise NotFound(
            f"{root} is no store: it has no folder {folder.name}",
            hint="name the folder that storePathRootDir names",
        )
    with OfflineLog([folder]) as log:
        yield root, log


@gives(_PARTS, _QUEUES, message_text.COLUMNS, data=message_text.DOCUMENT)
@shows_messages
def store_inspect(
    call: Call,
    directory: Directory,
    topic: Topic = None,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="OFFSET", help="The message at this offset of the log."),
    ] = None,
) -> Result:
    """Show what a store on the disk has, without a broker.

    The parts with their sizes; with -t the queues of a topic ('*' for all); with --at one message.
    Nothing is changed, and a broker may run.
    """
    with _log_of(directory) as (root, log):
        if at is not None:
            record = log.record_at(at)
            if record is None:
                raise NotFound(
                    f"no whole message begins at {at}", hint=f"see: mq store verify {root}"
                )
            return _messages([_stored(log.raw(record))])
        if topic is not None:
            return _queues(root, topic)
        return _parts(root, log)


def _parts(root: Path, log: "OfflineLog") -> Result:
    from mq.daemons.broker.store import layout
    from mq.daemons.broker.store.checkpoint import Checkpoint
    from mq.daemons.broker.store.offline import is_in_use
    from mq.daemons.broker.store.verification import index_files, read_queues

    files = log.files
    end = max((file.start + file.data_end for file in files), default=0)
    queues = list(read_queues(root))
    topics = len({queue.topic for queue in queues})
    checkpoint = Checkpoint(root / layout.CHECKPOINT_FILE)
    checkpoint.load()
    safe = f", the disk has all before {checkpoint.safe_offset}" if checkpoint.safe_offset else ""
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
            f"{len(queues)} queues of {topics} topics",
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
    from mq.cli.output import iso

    return iso(milliseconds) or "never"


def _queues(root: Path, pattern: str) -> Result:
    from fnmatch import fnmatchcase

    from mq.daemons.broker.store.verification import read_queues

    rows: list[Row] = []
    for queue in read_queues(root):
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
        raise NotFound(f"no queue of topic {pattern}", hint="all there are: -t '*'")
    return Result(_QUEUES, rows)


# verify and repair ----------------------------------------------------------------------------


@gives(_PROBLEMS, totals=_CHECKED)
def store_verify(call: Call, directory: Directory) -> Result:
    """Read a whole store and tell what is wrong with it.

    Each record of the log is verified with its checksum, each queue and the index are compared with
    the log, checkpoint and settings are read. Nothing is changed. While a broker runs, what it is
    writing may be told as a problem. Ends with 65 if there is one.
    """
    with _log_of(directory) as (root, log):
        return _problems(_verify(call, root, log))


def _verify(call: Call, root: Path, log: "OfflineLog") -> "Verified":
    from mq.cli.progress import progress
    from mq.daemons.broker.store.verification import Verification

    with progress(call.environment, "verifying", total=log.data_size, unit="bytes") as step:
        return Verification(root, log).run(step)


def _problems(verified: "Verified") -> Result:
    rows: list[Row] = [
        (problem.part, str(problem.path), problem.offset, problem.size, problem.why)
        for problem in verified.problems
    ]
    rows += [
        (part, "", -1, 0, f"{count} more problems of the same kind")
        for part, count in verified.untold.items()
    ]
    return Result(
        _PROBLEMS,
        rows,
        notes=[f"{path}: not looked into, its settings are unknown" for path in verified.skipped],
        totals={
            "records": verified.records,
            "recordBytes": verified.record_bytes,
            "queues": verified.queues,
            "entries": verified.entries,
            "indexItems": verified.index_items,
            "ofDeletedTopics": verified.of_deleted_topics,
            "problems": len(verified.problems) + verified.untold.total(),
            "lostBytes": verified.lost_bytes,
        },
        status=Status.BAD_DATA if rows else Status.DONE,
    )


@gives(_REPAIRS, totals=(number("problemsLeft", "Problems that a look afterwards found"),))
@writes
@concurrently
async def store_repair(
    call: Call,
    directory: Directory,
    copy: Annotated[
        str | None,
        typer.Option("--copy", metavar="DIR", help="Copy the store there and repair the copy."),
    ] = None,
    config_file: Annotated[
        str | None,
        typer.Option("-c", "--configFile", metavar="FILE", help="broker.conf, for delay levels."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Repair the store itself.")] = False,
) -> Result:
    """Make a damaged store one that a broker starts on.

    All messages that can be read are there afterwards. What is no record in the log is kept in
    damaged/ and filled with records that nobody is shown, so that the messages behind it stay where
    they are; queues and index are made again from the log. It is done to a copy (--copy DIR), or in
    place with --yes; --dry-run tells what would be done. No broker may run, and none can start
    meanwhile. Done by root, all of it belongs to the owner of the store. Ends with 65 if problems
    are left.
    """
    from mq.cli import store_files
    from mq.daemons.broker.store.offline import is_in_use

    if not (copy or yes or call.dry_run):
        raise UsageError(
            "a repair changes the store",
            hint=f"repair a copy: mq store repair {directory} --copy NEW-DIR; or in place: --yes",
        )
    config = _config(config_file)
    source = Path(directory)
    if is_in_use(source):
        raise CommandError(
            f"a broker runs on {source}", hint="stop it first", status=Status.TRY_AGAIN
        )
    if call.dry_run:
        return Result(_REPAIRS, _would_repair(call, source))
    with _log_of(directory):
        pass  # a store: nothing else is locked, or given to anybody
    root = source if copy is None else Path(copy)
    with _own(root, source), ExitStack() as locks:
        locks.enter_context(store_files.held(source, create=copy is None))
        if copy is not None:
            _copied(call, directory, root)
            locks.enter_context(store_files.held(root, create=True))
        return await _repair(call, root, config)


def _own(root: Path, source: Path) -> AbstractContextManager[None]:
    from mq.cli import store_files

    if root != source and root.exists():  # it is somebody's, and is going to be refused
        return nullcontext()
    return store_files.owned_as(root, source)


def _would_repair(call: Call, root: Path) -> list[Row]:
    from mq.daemons.broker.store import repair

    with _log_of(str(root)) as (_, log):
        repairs = repair.plan(root, log, _verify(call, root, log))
        for item in repairs:
            call.would("repair", item.path, f"{item.size} bytes at {item.offset}: {item.what}")
        return [(str(r.path), r.offset, r.size, r.what) for r in repairs]


async def _repair(call: Call, root: Path, config: "MessageStoreConfig") -> Result:
    from mq.daemons.broker.store import repair

    with _log_of(str(root)) as (_, log):
        verified = _verify(call, root, log)
        repairs = repair.plan(root, log, verified)
        rows: list[Row] = [(str(r.path), r.offset, r.size, r.what) for r in repairs]
        with _said():
            for item in repairs:
                item.do()
    if repairs:
        with _said():
            await repair.recover(root, config)
        with _log_of(str(root)) as (_, log):
            verified = _verify(call, root, log)
    left = _problems(verified)
    return Result(
        _REPAIRS, rows, totals={"problemsLeft": left.totals["problems"]}, status=left.status
    )


@contextmanager
def _said() -> Iterator[None]:
    """End the command with what a store says that cannot be repaired as it is."""
    from mq.daemons.broker.store.errors import StoreLoadError

    try:
        yield
    except StoreLoadError as error:
        raise CommandError(str(error), status=Status.CANNOT_CREATE) from None


def _copied(call: Call, source: str, target: Path) -> None:
    from mq.cli.progress import progress
    from mq.daemons.broker.store.repair import copy_store

    with _log_of(source) as (root, log):
        with progress(call.environment, "copying", total=log.data_size, unit="bytes") as step:
            try:
                copy_store(root, target, step)
            except FileExistsError:
                raise CommandError(
                    f"{target} is already there",
                    hint="name a folder that is not",
                    status=Status.CANNOT_CREATE,
                ) from None
            except BaseException:  # a full disk, Ctrl-C: half a copy is of no use
                shutil.rmtree(target, ignore_errors=True)
                raise


def _config(path: str | None) -> "MessageStoreConfig":
    from mq.daemons.broker.store_config import MessageStoreConfig
    from mq.daemons.config import ConfigError, read_file

    config = MessageStoreConfig()
    try:
        return config.replace(**config.parse(read_file(Path(path)))) if path else config
    except ConfigError as error:
        raise CommandError(str(error), status=Status.CONFIG) from error


# dump -----------------------------------------------------------------------------------------


@gives(message_text.COLUMNS, data=message_text.DOCUMENT)
@shows_messages
async def store_dump(
    call: Call,
    directory: Directory,
    topic: Topic = None,
    queue_id: Annotated[
        int | None, typer.Option("-q", "--queueId", metavar="ID", help="Of this queue only.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("-b", "--begin", metavar="TIME", help="Stored from then on.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("-e", "--end", metavar="TIME", help="Stored until then.")
    ] = None,
    offset: Annotated[
        int, typer.Option("--from", metavar="OFFSET", help="Begin at this offset of the log.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option("-m", "--limit", metavar="N", help="At most so many.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="Half messages of transactions, too.")
    ] = False,
) -> AsyncIterator[Result]:
    """Print the messages of a store in the order of its log, without a broker.

    Damaged places are told on standard error and left out; the status then is 1. TOPIC may be a
    pattern. Nothing is changed, and a broker may run.
    """
    from mq.daemons.broker.store.offline import Hole

    now = call.environment.clock()
    first = moments.parse(begin, "-b", now) if begin else 0
    last = moments.parse(end, "-e", now) if end else 1 << 62
    if limit is not None and limit < 1:
        raise UsageError(f"-m/--limit: {limit} messages", hint="1 or more")
    with _log_of(directory) as (_, log):
        found: list[StoredMessage] = []
        left = limit if limit is not None else -1
        for item in log.walk(offset):
            if isinstance(item, Hole):
                place = f"{item.path}: {item.size} bytes at {item.offset} left out: {item.why}"
                yield Result(message_text.COLUMNS, failures=[place], messages=[])
                continue
            if not (
                first <= item.store_timestamp <= last
                and (everything or item.is_queued)
                and (topic is None or _fits(item.topic, topic))
                and queue_id in (None, item.queue_id)
            ):
                continue
            found.append(_stored(log.raw(item)))
            left -= 1
            if len(found) >= _PER_RESULT or not left:
                yield _messages(found)
                found = []
            if not left:
                return
        if found:
            yield _messages(found)


def _fits(topic: str, pattern: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(topic, pattern)


def _stored(raw: bytes) -> "StoredMessage":
    from mq.protocol.message import decode_record

    return decode_record(raw)


def _messages(messages: "list[StoredMessage]") -> Result:
    plain = "".join(
        message_text.line(message, {}, bytes(message.body).decode("utf-8", "replace"))
        for message in messages
    )
    rows = [message_text.row(message) for message in messages]
    data = [message_text.document(message) for message in messages]
    return Result(message_text.COLUMNS, rows, plain, data=data, messages=messages)
