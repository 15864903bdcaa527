"""Dead letters: list, show, resend, export."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.commands import message_files
from mq.cli.messages import interrupted
from mq.cli.messages.selecting import BodyOption, Limit, RateOption, Resume
from mq.cli.parameters import group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import again, goes_on
from mq.cli.runtime.effects import gives, shows_messages, writes
from mq.cli.runtime.errors import UsageError, legal
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently, in_bulk
from mq.cli.show import message_text
from mq.cli.show.lazy import Mapped
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import number, text, time
from mq.client.operations.messages.lines import BodyForm
from mq.client.operations.messages.unpacking import Unpacked

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.operations.messages.dead_letter_resending import Resent
    from mq.client.operations.messages.dead_letters import NoLetters

COMMANDS = {
    "dlq": (
        "dlq list",
        "dlq show",
        "dlq resend",
        "dlq export",
    )
}

Group = Annotated[str, group_option()]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID", help="Only the message with this unique id or offset id."),
]

_LISTED = (
    text("group", "Consumer group"),
    number("messages", "Dead letters"),
    number("retriesUsedUp", "Retries used up"),
    number("givenUpEarly", "Failed early"),
    text("topics", "From topics"),
    time("oldest", "Oldest"),
    time("newest", "Newest"),
)
_SHOWN = (
    text("messageId", "Message id"),
    text("offsetId", ""),
    text("originTopic", "From topic"),
    text("originMessageId", ""),
    number("tries", "Tries"),
    text("cause", "Reason"),
    time("storeTime", "Stored"),
    text("resentAs", "Resent as"),
    text("tags", "Tags"),
    text("keys", "Keys"),
    text("body", "Body"),
)
_RESENT = (
    text("messageId", "Message id"),
    text("offsetId", ""),
    text("topic", "To topic"),
    text("result", "Result"),
    text("resentAs", "Offset id"),
    text("reason", "Reason"),
)
_RESENT_TOTALS = (
    number("sent", "Dead letters resent now"),
    number("before", "Dead letters resent earlier"),
    number("failed", "Dead letters not resent"),
)


@concurrently
@gives(_LISTED, totals=(number("messages", "All dead letters"),))
async def dlq_list(
    call: Call,
    scan: Annotated[
        int,
        typer.Option("--scan", metavar="N", help="Search the newest N of each group for reasons."),
    ] = 1000,
) -> Result:
    """List the consumer groups that have dead letters: how many, why, and from which topics.

    Reasons and topics are those of the newest dead letters, by default 1000 of each group (--scan).
    Retries are used up if a message failed as often as its group may retry it. A message failed
    early if the listener refused a retry, or if the consumer's own limit is below the group's.

    Examples:
        mq dlq list                the groups that have dead letters
        mq dlq list --scan 100000  search more of them for reasons
    """
    from mq.cli import listing
    from mq.client.operations.messages.dead_letters import groups_with_letters
    from mq.protocol.names import DEAD_LETTER_PREFIX

    if scan < 0:
        raise UsageError(f"--scan {scan}: must not be negative")
    async with call.admin() as admin:
        groups = [
            topic.removeprefix(DEAD_LETTER_PREFIX)
            for topic in await listing.topic_names(admin.session)
            if topic.startswith(DEAD_LETTER_PREFIX)
        ]
        found, failures = await groups_with_letters(admin, groups, scan)
    rows: list[Row] = [
        (
            item.group,
            item.messages,
            item.retries_used_up,
            item.given_up_early,
            item.topics_text,
            item.oldest,
            item.newest,
        )
        for item in found
    ]
    totals = {"messages": sum(item.messages for item in found)}
    return Result(_LISTED, rows, totals=totals, failures=failures)


@concurrently
@shows_messages
@gives(_SHOWN)
@subject("group")
async def dlq_show(
    call: Call,
    group: Group,
    ids: Ids = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", help="Only the newest N; with --id, all are searched."
        ),
    ] = 32,
) -> Result:
    r"""Show the dead letters of a consumer group, oldest first.

    It shows the original topic, the number of tries, the reason, and for a resent dead letter the
    offset id of the copy.

    Examples:
        mq dlq show billing  the newest dead letters, and their reasons
        mq dlq show billing --limit 1 --format '%k %b\n'
                             key and body of the newest
    """
    from mq.client.operations.messages.dead_letters import NoLetters, look_at

    _check(group)
    if limit < 1:
        raise UsageError(f"--limit {limit}: must be positive")
    async with call.admin() as admin:
        try:
            found, letters = await look_at(admin, group, ids, limit)
        except NoLetters as error:
            await _only_empty(admin, group, error, ids)
            return Result(_SHOWN, messages=[])
    messages = Unpacked([letter.message for letter in found])

    def row(index: int) -> Row:
        letter = found[index]
        return (
            letter.message_id,
            letter.offset_id,
            letter.origin_topic,
            letter.origin_message_id,
            letter.tries,
            letter.cause,
            letter.store_time,
            letter.resent_as,
            letter.tags,
            letter.keys,
            message_text.body_text(messages[index])[0],
        )

    rows = Mapped(row, range(len(found)))
    return Result(_SHOWN, rows, failures=letters.failures, messages=messages)


@concurrently
@writes
@gives(_RESENT, totals=_RESENT_TOTALS)
@subject("group")
@again("messages already sent are in their topics, and are not sent again")
async def dlq_resend(
    call: Call,
    group: Group,
    everything: Annotated[bool, typer.Option("--all", help="All that are not resent yet.")] = False,
    ids: Ids = None,
    limit: Limit = None,
    any_broker: Annotated[
        bool,
        typer.Option(
            "--any-broker", help="Use another broker if the dead letter's own accepts no copy."
        ),
    ] = False,
    unverified: Annotated[
        bool,
        typer.Option(
            "--unverified", help="Also send dead letters whose topic does not hold the original."
        ),
    ] = False,
) -> Result:
    """Send dead letters of a consumer group to the topics that they come from.

    Each one is sent once: a copy keeps the unique id of its message, and names its dead letter in
    the property MQ_RESENT_FROM. Before sending, the original topic is searched for such a copy; so
    it does not matter which user resent it, from where, or whether the reply was lost. Brokers must
    index messages for that (messageIndexEnable, on by default), and a mark lasts as long as the
    copy. Two commands do not resend dead letters of one group at the same time.

    A copy goes to the broker that holds the dead letter, so that it is found while other brokers
    are down. If that broker accepts no messages of the topic, the dead letter fails, unless
    --any-broker allows another broker; while that one is down, a further resend does not find the
    copy and sends it again.

    A client that may read as the group can write dead letters that name any topic. So a dead letter
    is sent only to a topic that holds the original: a message with the same unique id and content.
    If the original is deleted or not indexed, it fails. Check it with mq dlq show, then use
    --unverified with --id.

    All groups that consume the topic receive the copy, not only the one that failed. The dead
    letter stays until the broker deletes it with age. --limit counts dead letters that are sent or
    fail, oldest first.
    sent or fail, oldest first.

    Examples:
        mq dlq resend billing --all --dry-run  what would be sent
        mq dlq resend billing --all            send all that are not resent yet
        mq dlq resend billing --id 7F0000010A2C18B4AAC2A1B2C3D40000
                                               only one
    """
    _check(group)
    if everything == bool(ids):
        raise UsageError("one of --all and --id is required", hint="see: mq dlq show -g GROUP")
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: must be positive")
    async with call.admin() as admin:
        sending = {"any_broker": any_broker, "unverified": unverified}
        return await _resend(call, admin, group, ids, limit, sending)


async def _resend(
    call: Call,
    admin: "Admin",
    group: str,
    ids: list[str] | None,
    limit: int | None,
    sending: dict[str, bool],
) -> Result:
    from mq.client.operations.messages.dead_letter_locks import locked
    from mq.client.operations.messages.dead_letter_resending import Resending
    from mq.client.operations.messages.dead_letters import Letters, NoLetters
    from mq.client.producer.options import ANY_BODY
    from mq.client.producer.producer import Producer
    from mq.client.transport.session import Session

    session = admin.session
    assert isinstance(session, Session)  # the command runs on an event loop
    letters = Letters(admin, group)
    # No retries: before a retry, the topic must be searched for the first copy.
    async with Producer(
        session, "MQ_DLQ_RESEND", timeout=call.timeout, retries=0, max_body=ANY_BODY
    ) as producer:
        resending = Resending(admin, producer, **sending)
        try:
            if call.dry_run:
                results = await resending.run_all(letters, ids, limit)
                return _resent(results, letters.failures)
            async with locked(admin, session, letters) as failures:
                results = await resending.run_all(letters, ids, limit)
                warning = await resending.confirm()
        except NoLetters as error:
            await _only_empty(admin, group, error, ids)
            return _resent([], [])
    failures += letters.failures if warning is None else [*letters.failures, warning]
    return _resent(results, list(dict.fromkeys(failures)))


def _reason(item: "Resent") -> str:
    if not item.only_elsewhere:
        return item.reason
    return (
        f"{item.reason}; --any-broker uses another broker (and may send again later, "
        "while that one is down)"
    )


# The words for tables; JSON has the short ones.
_RESULTS = {"sent": "resent", "before": "already resent"}


def _resent(results: "list[Resent]", failures: list[str]) -> Result:
    rows: list[Row] = [
        (
            item.message_id,
            item.offset_id,
            item.topic,
            _RESULTS.get(item.result, item.result),
            item.copy_id,
            _reason(item) or None,
        )
        for item in results
    ]
    names = [column.name for column in _RESENT]
    data = [
        {**dict(zip(names, row, strict=True)), "result": item.result}
        for row, item in zip(rows, results, strict=True)
    ]
    counts = Counter(item.result for item in results)
    totals = {name: counts[name] for name in ("sent", "before", "failed")}
    failures = failures + [
        f"{item.message_id}: {_reason(item)}" for item in results if item.result == "failed"
    ]
    return Result(_RESENT, rows, totals=totals, failures=failures, data=data)


@in_bulk
@writes
@gives(message_files.EXPORTED, totals=message_files.TOTALS)
@subject("group", "file")
@goes_on(interrupted.export)
async def dlq_export(
    call: Call,
    group: Group,
    file: message_files.OutputFile = "-",
    body: BodyOption = BodyForm.TEXT,
    limit: Limit = None,
    rate: RateOption = None,
    resume: Resume = False,
) -> Result:
    """Write the dead letters of a consumer group to a file of JSON lines.

    It works as message export on the group's dead letter topic. message import can send the file to
    any topic.

    Examples:
        mq dlq export billing letters.jsonl  save dead letters in a file
        mq dlq export billing - --limit 10   ten of them, to standard output
    """
    from mq.client.errors import RouteNotFound
    from mq.client.operations import local_files
    from mq.client.operations.messages.choice import Choice
    from mq.client.operations.messages.dead_letters import Letters
    from mq.protocol.names import dead_letter_topic

    _check(group)
    choice = Choice(dead_letter_topic(group))
    try:
        return await message_files.export_to(
            call, file, choice, body=body, limit=limit, rate=rate, resume=resume
        )
    except RouteNotFound as error:
        async with call.admin() as admin:
            await _only_empty(admin, group, Letters(admin, group).none(), None, error)
    if file != "-":
        local_files.replace(Path(file), b"")
    return Result(message_files.EXPORTED, plain="" if file == "-" else None)


async def _only_empty(
    admin: "Admin",
    group: str,
    error: "NoLetters",
    ids: list[str] | None,
    cause: Exception | None = None,
) -> None:
    """Return if the dead letter list of an existing group is empty; otherwise raise.

    Raises `error` if the group does not exist or ids were given, and MQError if a broker has the
    topic that no name server has, or does not answer.
    """
    from mq.client.errors import RouteNotFound
    from mq.client.operations.subjects import groups, topics
    from mq.protocol.names import dead_letter_topic

    if ids or not await groups.exists(admin, group):
        raise error from cause
    topic = dead_letter_topic(group)
    holders, failed = await topics.holders(admin, topic)
    for unsaid in () if holders else failed.values():
        raise unsaid
    if holders:
        raise RouteNotFound(topic, f"no name server has it yet, but {holders[0]} does")


def _check(group: str) -> None:
    from mq.protocol.names import check_group

    legal(check_group, group)
