"""`mq offset export` and `mq offset import`: consumer offsets in files."""

from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import inputs
from mq.cli.parameters import cluster_option, group_option, topic_option
from mq.cli.rebalance_hint import report_if_early
from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import again
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import number, text, time
from mq.client.operations.offsets.records import Layout, OffsetRecord, Selection

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.operations.offsets.groups import FetchedOffsets
    from mq.client.operations.offsets.importing import Import, ImportedOffset

COMMANDS = {
    "offset": (
        "offset export",
        "offset import",
    )
}

ClusterName = Annotated[
    str | None,
    cluster_option("Only on the brokers of this cluster."),
]


@option_group
class Selecting:
    """Patterns of groups and topics."""

    group: Annotated[
        list[str] | None,
        group_option(text="Only groups that match this pattern: 'order-*'.", metavar="PATTERN"),
    ] = None
    topic: Annotated[
        list[str] | None,
        topic_option("Only topics that match this pattern: '*-log'.", metavar="PATTERN"),
    ] = None

    def selection(self) -> Selection:
        return Selection(tuple(self.group or ()), tuple(self.topic or ()))


class Measure(Enum):
    "Set groups by offset or by timestamp."

    OFFSET = "offset"
    TIMESTAMP = "timestamp"


By = Annotated[Measure | None, typer.Option("--by", help="Set groups by offset or by timestamp.")]

PLACE = (
    text("group", "Consumer group"),
    text("topic", "Topic"),
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
)
_EXPORTED = (*PLACE, number("offset", "Offset"), time("timestamp", "Stored"))
_IMPORTED = (
    *PLACE,
    number("before", "Before"),
    number("offset", "Offset"),
    text("result", "Result"),
    text("reason", "Reason"),
)


InputFile = Annotated[
    str,
    typer.Option(
        "-f", "--file", metavar="FILE", help="File that offset export wrote; -: standard input."
    ),
]


def records_in(call: Call, file: str) -> list[OffsetRecord]:
    """Return the offsets in a file. Raises BadData if offset export did not write it."""
    from mq.client.operations.offsets import records as offset_records

    return offset_records.decode(inputs.content(call.environment, file), inputs.called(file))


@option_group
class OutputFile:
    """The format of a file, and the number of older ones."""

    layout: Annotated[
        Layout | None, typer.Option("--as", help="Format of the file. Default: by its name.")
    ] = None
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", help="Keep N older files: FILE.1 and so on.")
    ] = 0

    def content(self, path: Path | None, records: list[OffsetRecord]) -> bytes:
        """Return the content for a path; None means standard output."""
        from mq.client.operations.offsets import records as offset_records

        by_name = Layout.CSV if path and path.suffix.lower() == ".csv" else Layout.JSONL
        return offset_records.encode(records, self.layout or by_name)


@concurrently
@writes
@gives(_EXPORTED, totals=(number("queues", "Offsets written"),))
@subject("file")
async def offset_export(
    call: Call,
    file: Annotated[
        str,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            help="File to write; -: standard output. A name with .csv makes it CSV.",
        ),
    ] = "-",
    *,
    selecting: Selecting,
    cluster_name: ClusterName = None,
    by: By = None,
    written: OutputFile,
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="BROKER", help="Broker that must be in the export."),
    ] = None,
) -> Result:
    """Write the offsets of consumer groups to a file.

    It exports all groups, topics, brokers and queues, unless patterns restrict them; groups of the
    system are left out. The file is replaced at the end, so it is complete at all times. Only one
    export writes a file at a time; a second one ends with exit status 79.

    With --by timestamp each line also has the store time of the next message. Such a file can be
    imported into another cluster, where the same messages have other offsets.

    If all went well, it prints the result only at a terminal or in another format. If a broker does
    not answer, the file holds the offsets of the others, and the exit status is 1; if none answers,
    the file is not changed. A broker that is down for some seconds disappears from name servers. It
    is reported if the replaced file has it, and always if --expect names it.

    Examples:
        mq offset export offsets.jsonl -g billing  the offsets of one group
        mq offset export offsets.jsonl --by timestamp
                                                   of all, for another cluster
    """
    from mq.client.operations import local_files

    if written.keep < 0:
        raise UsageError(f"--keep {written.keep}: must not be negative")
    path = None if file == "-" else Path(file)
    former = path if path and not local_files.is_stream(path) else None
    chosen = selecting.selection(), cluster_name, expect, former
    gather = partial(_gather, call, *chosen, timed=by is Measure.TIMESTAMP)
    if path is None:
        found = await gather()
        call.environment.say(written.content(None, found.records).decode())
        return Result(failures=found.failures, plain="")
    if call.dry_run:
        found = await gather()
        call.would("write", path, f"{len(found.records)} offsets")
    else:
        with local_files.locked(path):
            found = await gather()
            local_files.replace(path, written.content(path, found.records), keep=written.keep)
    return _exported(found)


def _exported(found: "FetchedOffsets") -> Result:
    rows: list[Row] = [
        (*record.key, record.offset, record.timestamp)
        for record in sorted(found.records, key=lambda record: record.key)
    ]
    # Quiet for timers, which mail any output.
    return Result(_EXPORTED, rows, "", {"queues": len(rows)}, found.failures)


async def _gather(
    call: Call,
    selection: Selection,
    cluster_name: str | None,
    expect: list[str] | None,
    path: Path | None,
    *,
    timed: bool,
) -> "FetchedOffsets":
    """Return the offsets; brokers of --expect or of the old file must be among them."""
    from mq.client.operations.offsets import groups as group_offsets

    expected = dict.fromkeys(expect or (), "")
    if path is not None:
        origin = f", but it was when {path} was written"
        expected = dict.fromkeys(_brokers_of(path, selection), origin) | expected
    async with call.admin() as admin:
        found = await group_offsets.gather(admin, selection, cluster_name, expected)
        await _check_named(admin, selection, found)
        if not timed:
            return found
        now = int(call.environment.clock() * 1000)
        stamped = await group_offsets.Times(admin, now).stamp(found.records)
        return stamped._replace(failures=found.failures + stamped.failures)


async def _check_named(admin: "Admin", selection: Selection, found: "FetchedOffsets") -> None:
    """Raise NotFound for a group or topic that is named and does not exist.

    Patterns may match nothing, and an existing group may have no offset.
    """
    from mq.cli import listing
    from mq.client.operations.errors import NotFound
    from mq.client.operations.subjects import groups

    groups_found = {record.key.group for record in found.records}
    for name in selection.groups:
        named = not any(letter in name for letter in "*?[") and name not in groups_found
        if named and not found.failures and not await groups.exists(admin, name):
            raise NotFound(f"no consumer group {name}", hint="see: mq consumerProgress")
    topics_found = {record.key.topic for record in found.records}
    for name in selection.topics:
        named = not any(letter in name for letter in "*?[") and name not in topics_found
        if named and name not in await listing.topic_names(admin.session):
            raise NotFound(f"no name server has topic {name}", hint="see: mq topicList")


def _brokers_of(path: Path, selection: Selection) -> set[str]:
    """Return the brokers in a file that will be replaced; none if it has no offsets."""
    from mq.client.operations.errors import BadData
    from mq.client.operations.offsets import records as offset_records

    try:
        records = offset_records.decode(path.read_bytes(), str(path))
    except (BadData, OSError):
        return set()
    return {record.key.broker_name for record in records if selection.takes(record.key)}


@option_group
class ImportOptions:
    """How the queues of a file are mapped, and which others are set."""

    brokers: Annotated[
        list[str] | None,
        typer.Option(
            "--broker", metavar="OLD=NEW", help="Name of a broker in the file, and its name now."
        ),
    ] = None
    earliest: Annotated[
        bool,
        typer.Option(
            "--earliest", help="Set queues that are not in the file to the group's earliest time."
        ),
    ] = False
    everywhere: Annotated[
        bool,
        typer.Option("--earliest-everywhere", help="Set all queues of a topic to that time."),
    ] = False
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Set groups with connected members, too; these may overwrite it."
        ),
    ] = False

    def importer(self, admin: "Admin", now: int, *, by_time: bool) -> "Import":
        """Return the importer at a time in ms. Raises UsageError for an invalid --broker."""
        from mq.client.operations.offsets.importing import Import

        return Import(
            admin,
            now,
            _renamed(self.brokers),
            by_time=by_time,
            earliest=self.earliest,
            everywhere=self.everywhere,
            force=self.force,
        )


@concurrently
@writes
@gives(_IMPORTED, totals=(number("set", "Offsets changed"),))
@subject("file")
@again("offsets already set stay, and are set to the same again")
async def offset_import(
    call: Call,
    file: InputFile,
    *,
    selecting: Selecting,
    by: By = None,
    setting: ImportOptions,
) -> Result:
    """Set the offsets of consumer groups from a file.

    Without --by, it uses timestamps if the file has them. By timestamp a group starts at the first
    message of each queue that was stored then or later. --broker says that a broker has the same
    queues under another name.

    If a queue of the file does not exist, it is reported as missing, and the exit status is not 0:
    its broker may be down. A queue that is not in the file is left alone, and reported if the group
    has no offset in it. --earliest sets such queues to the earliest time of the group in the topic,
    for a cluster with other brokers; --earliest-everywhere sets all queues to it, for a cluster
    where the messages are in other queues. Then the group may consume some again, and skips none.

    Groups with connected consumers are left alone, because these overwrite the offsets within
    seconds; --force sets them anyway. An offset past the end of a queue is not set.

    Examples:
        mq offset import offsets.jsonl --dry-run   show what would be set
        mq offset import offsets.jsonl -g billing  restore one group from the file
    """
    records, by_time = _records_of(call, file, selecting.selection(), by)
    if (setting.earliest or setting.everywhere) and not by_time:
        raise UsageError("--earliest needs --by timestamp")
    now = int(call.environment.clock() * 1000)
    async with call.admin() as admin:
        importer = setting.importer(admin, now, by_time=by_time)
        outcomes = await importer.run(records)
        await report_if_early(call, admin, importer.without)
    return _imported(outcomes)


def _records_of(
    call: Call, file: str, selection: Selection, by: Measure | None
) -> tuple[list[OffsetRecord], bool]:
    """Return the selected records of a file, and whether to set them by timestamp."""
    found = records_in(call, file)
    records = [record for record in found if selection.takes(record.key)]
    timed = any(record.timestamp is not None for record in records)
    by_time = timed if by is None else by is Measure.TIMESTAMP
    if by_time and not timed and records:
        raise UsageError(
            f"{inputs.called(file)} has no timestamps", hint="export with --by timestamp"
        )
    return records, by_time


# The exit status of an import that set nothing, by the result of its first queue.
_STATUS = {
    "running": Status.TRY_AGAIN,
    "missing": Status.NOT_FOUND,
    "failed": Status.UNAVAILABLE,
}


# The option that helps, by the result.
_WAYS_OUT = {"left": ": --earliest gives it one", "running": ", or --force"}


def _reason(item: "ImportedOffset") -> str:
    return item.reason and item.reason + _WAYS_OUT.get(item.result, "")


def _imported(outcomes: list["ImportedOffset"]) -> Result:
    rows: list[Row] = [
        (*item.key, item.before, item.offset, item.result, _reason(item) or None)
        for item in outcomes
    ]
    failed = [item for item in outcomes if not item.is_done]
    wanted = [item for item in outcomes if item.result != "left"]
    failures = list(dict.fromkeys(map(_reason, failed)))
    result = Result(_IMPORTED, rows, failures=failures)
    result.totals = {"set": sum(item.result == "set" for item in outcomes)}
    if wanted and not any(item.is_done for item in wanted):
        result.status = _STATUS[wanted[0].result]
    return result


def _renamed(pairs: list[str] | None) -> dict[str, str]:
    names = {}
    for pair in pairs or ():
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UsageError(f"--broker {pair}: expected OLD=NEW")
        names[old] = new
    return names
