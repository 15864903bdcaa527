"""`mq message export`: writes messages to files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.messages import interrupted
from mq.cli.messages.selecting import (
    Begin,
    BodyOption,
    End,
    Limit,
    Narrowing,
    RateOption,
    Resume,
    choice_of,
)
from mq.cli.parameters import Topic
from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import goes_on
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import in_bulk
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import number, text
from mq.client.operations.messages.lines import BodyForm

if TYPE_CHECKING:
    from mq.client.operations.messages.choice import Choice
    from mq.client.operations.messages.export import Exported
    from mq.client.operations.messages.rate import Rate
    from mq.client.operations.messages.sinks import Sink

OutputFile = Annotated[
    str, typer.Option("-f", "--file", metavar="FILE", help="File to write; -: standard output.")
]

COMMANDS = {"message": ("message export",)}

EXPORTED = (
    text("brokerName", "Broker"),
    number("queueId", "Queue"),
    number("nextOffset", "Next offset"),
    number("messages", "Messages"),
)
TOTALS = (number("messages", "Messages written in total"),)


@in_bulk
@writes
@gives(EXPORTED, totals=TOTALS)
@subject("topic", "file")
@goes_on(interrupted.export)
async def message_export(
    call: Call,
    topic: Topic,
    file: OutputFile = "-",
    begin: Begin = None,
    end: End = None,
    *,
    narrowing: Narrowing,
    body: BodyOption = BodyForm.TEXT,
    limit: Limit = None,
    rate: RateOption = None,
    resume: Resume = False,
) -> Result:
    """Write the messages of a topic to a file of JSON lines.

    It exports from the oldest message to the newest at the start of the command. Each queue is in
    order; queues are read in parallel and mixed. No group is created, and no offset committed.

    FILE appears when it is complete. Until then it is FILE.part, with FILE.state next to it; after
    Ctrl-C or the failure of a broker the same command with --resume continues. If a broker does not
    answer, the others are exported, and the exit status is 1; --resume adds the rest later. On a
    full disk no file remains, unless --resume was given.

    With --body json a JSON body is written as a JSON value, which does not keep its layout. A body
    of more than 4 MiB, or with numbers or names that a value would change, is written as text;
    bodyEncoding shows the form. The other forms keep each byte.

    Examples:
        mq message export Orders orders.jsonl  write all messages to a file
        mq message export Orders - --begin 1h --tag paid
                                               a selection, to standard output
    """
    choice = choice_of(call, topic, narrowing, begin, end)
    return await export_to(call, file, choice, body=body, limit=limit, rate=rate, resume=resume)


async def export_to(
    call: Call,
    file: str,
    choice: "Choice",
    *,
    body: BodyForm,
    limit: int | None,
    rate: float | None,
    resume: bool,
) -> Result:
    """Write the chosen messages to a file, or to standard output for `-`."""
    from mq.client.operations import local_files
    from mq.client.operations.messages.file_sink import FileSink
    from mq.client.operations.messages.rate import Rate
    from mq.client.operations.messages.sinks import StreamSink

    limiter = Rate(rate)
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: must be positive")
    if file == "-" and resume:
        raise UsageError("--resume needs a file: standard output cannot be resumed")
    if file == "-":
        stream = StreamSink(call.environment.shown)
        return await _export(call, choice, stream, body, limit, limiter)
    path = Path(file)
    if call.dry_run:
        call.would("write", path, f"messages of topic {choice.topic}")
        return Result()
    if local_files.is_stream(path):
        if resume:
            raise UsageError(f"--resume needs a file: {file} cannot be resumed")
        with local_files.stream(path) as there:
            return await _export(call, choice, StreamSink(there), body, limit, limiter)
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
    from mq.cli.runtime.progress import of_messages
    from mq.client.operations.messages.export import export
    from mq.client.operations.messages.file_sink import FileSink
    from mq.client.operations.messages.long_lines import long_encoder
    from mq.client.operations.messages.reading import Reader

    shown = of_messages(call.environment, "exporting")
    async with call.session() as session:
        reader = Reader(session, choice)
        encode = long_encoder(body)
        exported = await export(reader, sink, encode, rate=rate, limit=limit, progress=shown)
    if not isinstance(sink, FileSink):
        # Standard output holds the messages.
        return Result(plain="", failures=exported.failures)
    return _exported(exported)


def _exported(exported: "Exported") -> Result:
    rows: list[Row] = [
        (span.queue.broker_name, span.queue.queue_id, span.next, exported.counts.get(span.name, 0))
        for span in sorted(exported.spans, key=lambda span: span.queue)
    ]
    totals = {"messages": sum(exported.counts.values())}
    return Result(EXPORTED, rows, totals=totals, failures=exported.failures)
