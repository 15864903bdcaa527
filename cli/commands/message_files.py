"""Messages to files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.messages.lines import BodyForm
from mq.cli.moments import FORMS
from mq.cli.moments import parse as parse_moment
from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError, legal
from mq.cli.runtime.runner import in_bulk
from mq.cli.show.result import Result, Row, number, text

if TYPE_CHECKING:
    from mq.cli.messages.choice import Choice, Rate, Reader, Span
    from mq.cli.messages.export import Sink

COMMANDS = {"message": ("message export",)}

Begin = Annotated[
    str | None, typer.Option("--begin", metavar="TIME", help=f"Stored then or later: {FORMS}.")
]
End = Annotated[str | None, typer.Option("--end", metavar="TIME", help="Stored before then.")]
Brokers = Annotated[
    list[str] | None,
    typer.Option("-b", "--brokerName", metavar="NAME", help="Of this broker. Repeatable."),
]
Queues = Annotated[
    list[int] | None,
    typer.Option("-i", "--queueId", metavar="ID", help="Of this queue. Repeatable."),
]
Tags = Annotated[
    str | None, typer.Option("--tag", metavar="TAGS", help="With one of these tags: 'a || b'.")
]
Sql = Annotated[
    str | None,
    typer.Option("--sql", metavar="EXPRESSION", help="That an SQL92 expression is true of."),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="With this key, or this unique id.")
]
RateOption = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="At most N messages a second.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="At most N messages, of all queues.")
]
BodyOption = Annotated[
    BodyForm, typer.Option("--body", help="text (base64 where it is not UTF-8), base64, or json.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where a cut one has ended.")]

EXPORTED = (
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("nextOffset", "Next offset"),
    number("messages", "Messages"),
)
TOTALS = (number("messages", "All messages that were written"),)


def choice_of(
    call: Call,
    topic: str,
    begin: str | None,
    end: str | None,
    brokers: list[str] | None,
    queues: list[int] | None,
    tags: str | None,
    sql: str | None,
    key: str | None,
) -> "Choice":
    """What the options choose. Raises UsageError for what does not fit."""
    from mq.cli.messages.choice import Choice, parse_queue_ids
    from mq.protocol.names import check_topic

    legal(check_topic, topic)
    now = call.environment.clock()
    return Choice(
        topic,
        None if begin is None else parse_moment(begin, "--begin", now),
        None if end is None else parse_moment(end, "--end", now),
        tuple(brokers or ()),
        parse_queue_ids(queues),
        tags,
        sql,
        key,
        (begin, end),
    )


@in_bulk
@writes
@gives(EXPORTED, totals=TOTALS)
async def message_export(
    call: Call,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is standard output.")],
    topic: Topic,
    begin: Begin = None,
    end: End = None,
    broker_name: Brokers = None,
    queue_id: Queues = None,
    tag: Tags = None,
    sql: Sql = None,
    key: Key = None,
    body: BodyOption = BodyForm.TEXT,
    limit: Limit = None,
    rate: RateOption = None,
    resume: Resume = False,
) -> Result:
    """Write the messages of a topic to a file of JSON lines.

    From the oldest message that is kept to the newest at the start of the command. Each queue is
    in order; queues are read side by side and mixed. Nothing is committed, no group is left behind.

    FILE appears when everything is in it. Until then it is FILE.part, with FILE.state beside it;
    after Ctrl-C, or when a broker has gone away, the same command with --resume goes on from there.
    When a broker does not answer the others are exported, and the status is 1; --resume adds the
    rest later. On a full disk nothing is left, unless --resume was given.

    With --body json a body that is JSON is written as the value that it is, which does not keep
    its layout. The other forms keep each byte.
    """
    choice = choice_of(call, topic, begin, end, broker_name, queue_id, tag, sql, key)
    return await export(call, file, choice, body=body, limit=limit, rate=rate, resume=resume)


async def export(
    call: Call,
    file: str,
    choice: "Choice",
    *,
    body: BodyForm,
    limit: int | None,
    rate: float | None,
    resume: bool,
) -> Result:
    """Write what is chosen to a file, or to standard output for `-`."""
    from mq.cli.messages.choice import Rate
    from mq.cli.messages.export import FileSink, StreamSink
    from mq.client.operations import local_files

    limiter = Rate(rate)
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: it must be positive")
    if file == "-" and resume:
        raise UsageError("--resume needs a file: standard output cannot go on")
    if file == "-":
        stream = StreamSink(call.environment.stdout)
        return await _export(call, choice, stream, body, limit, limiter)
    path = Path(file)
    if call.dry_run:
        call.would("write", path, f"messages of topic {choice.topic}")
        return Result()
    asked = {**choice.document(), "body": body.value, "nameServers": call.name_servers}
    with local_files.locked(path), FileSink(path, asked, resume=resume) as sink:
        return await _export(call, choice.at_times_of(asked), sink, body, limit, limiter)


async def _export(
    call: Call,
    choice: "Choice",
    sink: "Sink",
    body: BodyForm,
    limit: int | None,
    rate: "Rate",
) -> Result:
    from mq.cli.messages.choice import Reader
    from mq.cli.messages.export import Exporter, FileSink
    from mq.cli.messages.lines import encoder
    from mq.cli.runtime.progress import progress

    async with call.session() as session:
        reader = Reader(session, choice)
        known: list[str] = []
        if isinstance(sink, FileSink):
            known = [name for name, ends in sink.positions.items() if not ends or ends[0] < ends[1]]
        spans, failures = await reader.spans(known)
        if isinstance(sink, FileSink):
            spans = await _go_on(reader, spans, sink.positions, failures)
            sink.begin(spans, reader.unread)
            if limit is not None:
                limit = max(0, limit - sink.written)
        total = sum(span.end - span.next for span in spans)
        with progress(call.environment, "exporting", total=total, unit="messages") as step:
            exporter = Exporter(reader, sink, encoder(body), rate=rate, limit=limit, step=step)
            await exporter.run(spans)
    failures += exporter.failures
    if isinstance(sink, FileSink):
        sink.incomplete = bool(failures)  # --resume can add what failed, but not what is gone
    failures += reader.gaps
    result = _exported(spans, exporter.counts, failures)
    if not isinstance(sink, FileSink):
        return Result(plain="", failures=failures)  # standard output is full of messages
    return result


async def _go_on(
    reader: "Reader", spans: list["Span"], positions: dict[str, list[int]], failures: list[str]
) -> list["Span"]:
    """Begin and end where the cut export would have; the spans that can go on."""
    from mq.client.errors import MQError

    able = []
    for span in spans:
        ends = positions.get(span.name)
        if ends:
            begin, end, *seen = ends
            failure = None
            if begin < end:  # what was read to its end is had, whatever the queue is now
                try:
                    failure = await reader.go_on(span, begin, (seen[0], seen[1]) if seen else None)
                except MQError as error:
                    failure = f"{span.name}: {error}"
            if failure is not None:
                failures.append(failure)
                continue
            span.next, span.end = begin, end
            span.seen = (seen[0], seen[1]) if seen else None
        able.append(span)
    return able


def _exported(spans: list["Span"], counts: dict[str, int], failures: list[str]) -> Result:
    rows: list[Row] = [
        (span.queue.broker_name, span.queue.queue_id, span.next, counts.get(span.name, 0))
        for span in sorted(spans, key=lambda span: span.queue)
    ]
    totals = {"messages": sum(counts.values())}
    return Result(EXPORTED, rows, totals=totals, failures=failures)
