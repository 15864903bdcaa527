"""`mq store verify` and `mq store repair`: work without a broker."""

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
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import number, text

if TYPE_CHECKING:
    from mq.daemons.broker.store.tools import OfflineLog, VerificationReport
    from mq.daemons.broker.store_config import MessageStoreConfig

COMMANDS = {
    "store": (
        "store verify",
        "store repair",
    )
}

# Parts of a store's directory that verification covers, with those that hold no data to verify.
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
    number("entries", "Queue entries that point to a message"),
    number("indexItems", "Index items"),
    number("ofDeletedTopics", "Messages of deleted topics"),
    number("problems", "Problems"),
    number("lostBytes", "Bytes of the log without a record"),
)


@gives(_PROBLEMS, totals=_CHECKED)
def store_verify(call: Call, directory: offline_store.Directory) -> Result:
    """Read a whole store and report what is wrong with it.

    It verifies the checksum of each record in the log, compares queues and index with the log, and
    reads checkpoint and settings. If all is well, it reports that, and names the parts that it did
    not check, such as the timer's files. The checksum of a message covers its body: changed bits in
    its times and most of its properties, and in numbers of settings, are not detected. Nothing is
    changed. While a broker runs, unfinished writes may be reported as problems. The exit status is
    65 if there are problems.

    Examples:
        mq store verify ~/store          check a whole store
        mq store verify ~/store -o json  for a program
    """
    root = offline_store.root_of(call, directory)
    with offline_store.log_of(root) as log:
        files = len(log.files)
        verified = _verify(call, root, log)
    result = _problems(verified)
    others = sorted(path.name for path in root.iterdir() if path.name not in _LOOKED_INTO)
    if others:
        result.notes.append(f"not checked: {', '.join(others)}")
    if result.status is Status.DONE and call.output in (Format.TABLE, Format.PLAIN):
        result.columns, result.plain = (), _sound(root, files, verified, result.notes)
    return result


def _sound(root: Path, files: int, verified: "VerificationReport", notes: list[str]) -> str:
    """Return a text that names the checked parts of a store without problems."""
    from mq.client.operations.plurals import counted

    log = f"{counted(verified.records, 'record')} ({verified.record_bytes:,} bytes)"
    queues = f"{counted(verified.queues, 'queue')} with {counted(verified.entries, 'message')}"
    deleted = ""
    if verified.of_deleted_topics:
        left = counted(verified.of_deleted_topics, "message")
        names = ", ".join(sorted(verified.deleted_topics)) or "deleted queues"
        deleted = f"; {left} in the log of topics without settings can no longer be read: {names}"
    return (
        f"{root} is sound: the checksums of {log} in {counted(files, 'file')} of the log are "
        f"correct; {queues} and {counted(verified.index_items, 'item')} of the index point to "
        f"existing records; checkpoint and settings are readable{deleted}\n"
        + "".join(f"{note}\n" for note in notes)
    )


def _verify(call: Call, root: Path, log: "OfflineLog") -> "VerificationReport":
    from mq.cli.runtime.progress import progress
    from mq.daemons.broker.store.tools import Verification

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
        notes=[f"{path}: not checked, its settings are unknown" for path in verified.skipped],
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

    It keeps all readable messages. Bytes of the log that are not a record are saved in damaged/ and
    replaced by invisible records, so that later messages keep their offsets; queues and index are
    rebuilt from the log. It repairs a copy (--copy DIR), or the store itself with --yes; --dry-run
    shows the changes. No broker may run, and none can start meanwhile. If root runs it, all files
    belong to the owner of the store. The exit status is 65 if problems are left.

    Examples:
        mq store repair ~/store --copy ~/repaired  repair a copy, leave the store alone
        mq store repair ~/store --copy ~/repaired --dry-run
                                                   show the changes
    """
    from mq.cli.machine import store_files
    from mq.daemons.broker.store import is_in_use

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

    if root != source and root.exists():  # it exists and will be refused
        return nullcontext()
    return store_files.owned_as(root, source)


def _would_repair(call: Call, root: Path) -> list[Row]:
    from mq.daemons.broker.store.tools import repair

    with offline_store.log_of(root) as log:
        repairs = repair.plan(root, log, _verify(call, root, log))
        for item in repairs:
            call.would("repair", item.path, f"{item.size} bytes at {item.offset}: {item.what}")
        return [(str(r.path), r.offset, r.size, r.what) for r in repairs]


async def _repair(call: Call, root: Path, config: "MessageStoreConfig") -> Result:
    from mq.daemons.broker.store.tools import repair

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
    """End the command with the error of a store that cannot be repaired as it is."""
    from mq.daemons.broker.store import StoreLoadError

    try:
        yield
    except StoreLoadError as error:
        raise CommandError(str(error), status=Status.CANNOT_CREATE) from None


def _copied(call: Call, source: Path, target: Path) -> None:
    from mq.cli.runtime.progress import progress
    from mq.daemons.broker.store.tools import copy_store

    with offline_store.log_of(source) as log:
        with progress(call.environment, "copying", total=log.data_size, unit="bytes") as step:
            try:
                with interrupting(None):
                    copy_store(source, target, step)
            except FileExistsError:
                raise CommandError(
                    f"{target} already exists",
                    hint="name a new directory",
                    status=Status.CANNOT_CREATE,
                ) from None
            except BaseException:  # after a full disk or Ctrl-C, half a copy is useless
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
