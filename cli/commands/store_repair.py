"""Whether a store is whole, and making it so: without a broker."""

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.machine import offline_store
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.interruption import interrupting
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.output import Format
from mq.cli.show.result import Result, Row, number, text

if TYPE_CHECKING:
    from mq.daemons.broker.store.offline import OfflineLog
    from mq.daemons.broker.store.verification import VerificationReport
    from mq.daemons.broker.store_config import MessageStoreConfig

COMMANDS = {
    "store": (
        "store verify",
        "store repair",
    )
}

# Of a store's folder; what holds no messages or says nothing of itself is here, too.
_LOOKED_INTO = frozenset(
    "abort checkpoint commitlog config consumequeue damaged deletions.json deletions.json.bak "
    "index lock".split()
)
_PROBLEMS = (
    text("part", "Part"),
    text("path", "Where"),
    number("offset", "Offset"),
    number("lostBytes", "Lost bytes"),
    text("why", "Reason"),
)
_REPAIRS = (
    text("path", "Where"),
    number("offset", "Offset"),
    number("bytes", "Bytes"),
    text("repair", "Repair"),
)
_CHECKED = (
    number("records", "Records in the log"),
    number("recordBytes", "Their bytes"),
    number("queues", "Queues"),
    number("entries", "Entries of queues that point at a message"),
    number("indexItems", "Items of the index"),
    number("ofDeletedTopics", "Messages of deleted topics"),
    number("problems", "Problems"),
    number("lostBytes", "Bytes of the log without a record"),
)


@gives(_PROBLEMS, totals=_CHECKED)
def store_verify(call: Call, directory: offline_store.Directory) -> Result:
    """Read a whole store and report what is wrong with it.

    Each record of the log is verified with its checksum, each queue and the index are compared with
    the log, checkpoint and settings are read. Where nothing is wrong it says so, and names what was
    not looked into, such as the timer's files. The checksum of a message is of its body: changed
    bits in its times and in most of its properties, and in the numbers of settings, are not found.
    Nothing is changed. While a broker runs, what it is writing may be reported as a
    problem. Ends with 65 if there is one.

    Examples:
        mq store verify ~/store          check all of a store
        mq store verify ~/store -o json  for a program
    """
    root = offline_store.root_of(call, directory)
    with offline_store.log_of(root) as log:
        files = len(log.files)
        verified = _verify(call, root, log)
    result = _problems(verified)
    others = sorted(path.name for path in root.iterdir() if path.name not in _LOOKED_INTO)
    if others:
        result.notes.append(f"not looked into: {', '.join(others)}")
    if result.status is Status.DONE and call.output in (Format.TABLE, Format.PLAIN):
        result.columns, result.plain = (), _sound(root, files, verified, result.notes)
    return result


def _sound(root: Path, files: int, verified: "VerificationReport", notes: list[str]) -> str:
    """What was looked at in a store in which nothing is wrong, for people."""
    from mq.client.operations.plurals import counted

    log = f"{counted(verified.records, 'record')} ({verified.record_bytes:,} bytes)"
    queues = f"{counted(verified.queues, 'queue')} with {counted(verified.entries, 'message')}"
    deleted = ""
    if verified.of_deleted_topics:
        left = counted(verified.of_deleted_topics, "message")
        names = ", ".join(sorted(verified.deleted_topics)) or "queues that were deleted"
        deleted = f"; {left} in the log can be read no more, of topics not in its settings: {names}"
    return (
        f"{root} is sound: the checksums of {log} in {counted(files, 'file')} of the log are "
        f"right; what {queues} and {counted(verified.index_items, 'item')} of the index point at "
        f"is there; checkpoint and settings can be read{deleted}\n"
        + "".join(f"{note}\n" for note in notes)
    )


def _verify(call: Call, root: Path, log: "OfflineLog") -> "VerificationReport":
    from mq.cli.runtime.progress import progress
    from mq.daemons.broker.store.verification import Verification

    with (
        interrupting(None),  # nothing is awaited meanwhile, and nothing changed
        progress(call.environment, "verifying", total=log.data_size, unit="bytes") as step,
    ):
        return Verification(root, log).run(step)


def _problems(verified: "VerificationReport") -> Result:
    rows: list[Row] = [
        (problem.part, str(problem.path), problem.offset, problem.size, problem.why)
        for problem in verified.problems
    ]
    rows += [
        (part, "", -1, 0, f"{count} more problems of the same kind")
        for part, count in verified.unreported.items()
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
            "problems": len(verified.problems) + verified.unreported.total(),
            "lostBytes": verified.lost_bytes,
        },
        status=Status.BAD_DATA if rows else Status.DONE,
    )


@gives(_REPAIRS, totals=(number("problemsLeft", "Problems found afterwards"),))
@writes
@concurrently
async def store_repair(
    call: Call,
    directory: offline_store.Directory,
    copy: Annotated[
        str | None,
        typer.Option(
            "--copy", metavar="DIR", help="Copy the store to this directory and repair the copy."
        ),
    ] = None,
    config_file: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--configFile",
            metavar="FILE",
            help="Settings file of the broker, for its delay levels.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Repair the store itself, not a copy.")
    ] = False,
) -> Result:
    """Repair a damaged store, so that a broker starts on it.

    All messages that can be read are there afterwards. What is not a record in the log is kept in
    damaged/ and filled with records that nobody is shown, so that the messages behind it stay where
    they are; queues and index are made again from the log. It is done to a copy (--copy DIR), or in
    place with --yes; --dry-run shows what would be done. No broker may run, and none can start
    meanwhile. Done by root, all of it belongs to the owner of the store. Ends with 65 if problems
    are left.

    Examples:
        mq store repair ~/store --copy ~/repaired  repair a copy, leave the store alone
        mq store repair ~/store --copy ~/repaired --dry-run
                                                   show what would be done
    """
    from mq.cli.machine import store_files
    from mq.daemons.broker.store.lock import is_in_use

    if not (copy or yes or call.dry_run):
        raise UsageError(
            "a repair changes the store",
            hint=f"repair a copy: mq store repair {directory} --copy NEW-DIR; or in place: --yes",
        )
    config = _config(config_file)
    source = offline_store.root_of(call, directory)
    if is_in_use(source):
        raise CommandError(
            f"a broker runs on {source}", hint="stop it first", status=Status.TRY_AGAIN
        )
    if call.dry_run:
        return Result(_REPAIRS, _would_repair(call, source))
    root = source if copy is None else Path(copy)
    with _own(root, source), ExitStack() as locks:
        locks.enter_context(store_files.held(source, create=copy is None))
        if copy is not None:
            _copied(call, source, root)
            locks.enter_context(store_files.held(root, create=True))
        return await _repair(call, root, config)


def _own(root: Path, source: Path) -> AbstractContextManager[None]:
    from mq.cli.machine import store_files

    if root != source and root.exists():  # it is somebody's, and is going to be refused
        return nullcontext()
    return store_files.owned_as(root, source)


def _would_repair(call: Call, root: Path) -> list[Row]:
    from mq.daemons.broker.store import repair

    with offline_store.log_of(root) as log:
        repairs = repair.plan(root, log, _verify(call, root, log))
        for item in repairs:
            call.would("repair", item.path, f"{item.size} bytes at {item.offset}: {item.what}")
        return [(str(r.path), r.offset, r.size, r.what) for r in repairs]


async def _repair(call: Call, root: Path, config: "MessageStoreConfig") -> Result:
    from mq.daemons.broker.store import repair

    with offline_store.log_of(root) as log:
        verified = _verify(call, root, log)
        repairs = repair.plan(root, log, verified)
        rows: list[Row] = [(str(r.path), r.offset, r.size, r.what) for r in repairs]
        with _said():
            for item in repairs:
                item.do()
    if repairs:
        with _said():
            await repair.recover(root, config)
        with offline_store.log_of(root) as log:
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


def _copied(call: Call, source: Path, target: Path) -> None:
    from mq.cli.runtime.progress import progress
    from mq.daemons.broker.store.repair import copy_store

    with offline_store.log_of(source) as log:
        with progress(call.environment, "copying", total=log.data_size, unit="bytes") as step:
            try:
                with interrupting(None):
                    copy_store(source, target, step)
            except FileExistsError:
                raise CommandError(
                    f"{target} already exists",
                    hint="name a directory that does not exist yet",
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
