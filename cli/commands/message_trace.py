"""The trace command of mqadmin. Formats: QueryMsgTraceByIdSubCommand."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import BeginTimestamp, EndTimestamp
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.options import subject
from mq.cli.show import java_text
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import span_of
from mq.client.operations import java_order
from mq.client.operations.columns import columns_of, row_of
from mq.client.operations.errors import NotFound
from mq.client.operations.messages.finding import unsaid
from mq.client.operations.messages.traces import Entry, TraceRow, entries, row
from mq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from mq.client.errors import MQError
    from mq.client.trace.entries import Pub, SubAfter
    from mq.protocol.message import StoredMessage

COMMANDS = {"message": ("queryMsgTraceById",)}

COLUMNS = columns_of(TraceRow)
_LINE = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}\n"


@gives(COLUMNS)
@subject("msg_id")
async def query_msg_trace_by_id(
    call: Call,
    msg_id: Annotated[
        str, typer.Option("-i", "--msgId", metavar="ID", help="Unique id of the message.")
    ],
    trace_topic: Annotated[
        str, typer.Option("-t", "--traceTopic", metavar="TOPIC", help="Topic with the traces.")
    ] = TRACE_TOPIC,
    begin_timestamp: BeginTimestamp = None,
    end_timestamp: EndTimestamp = None,
    max_num: Annotated[
        int,
        typer.Option("-c", "--maxNum", metavar="N", help="At most N messages from each broker."),
    ] = 64,
) -> Result:
    """Show which clients sent and consumed a message, from client traces.
    The result of a transaction is shown in formats other than plain; mqadmin does not show it.

    Examples:
        mq queryMsgTraceById 7F0000010A2C18B4AAC2A1B2C3D40000
                                        producer and consumers
        mq queryMsgTraceById 7F0000010A2C18B4AAC2A1B2C3D40000 -o table
                                        in columns
    """
    span = span_of(call, begin_timestamp, end_timestamp)
    errors: list[MQError] = []  # brokers that failed; the rest is shown
    async with call.admin() as admin:
        messages = await admin.find_by_key(
            trace_topic, msg_id, max_num, *span, decompress=False, failures=errors
        )
    found, failures = entries(messages, msg_id)
    failures += unsaid(trace_topic, errors)
    if not messages:
        for error in errors:
            raise error
        raise NotFound(
            f"no trace of message {msg_id!r} in topic {trace_topic}",
            hint="only clients with message tracing enabled write traces",
        )
    rows = [_row(record, message) for record, message in found]
    return Result(COLUMNS, rows, _plain(found), failures=failures)


def _row(record: "Pub | SubAfter", message: "StoredMessage") -> Row:
    return row_of(row(record, message))


def _plain(found: list[Entry]) -> str:
    """Return each send under its own head, then consumers by group in the order of Java's map."""
    plain = ""
    groups: dict[str, list[Row]] = {}
    for record, message in found:
        row = _row(record, message)
        if row[0] == "Pub":
            heads = "#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"
            plain += _LINE.format(*heads) + _line(row) + "\n"
        else:
            groups.setdefault(record.group, []).append(row)
    for group in java_order.hash_order(groups):
        heads = "#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"
        plain += _LINE.format(*heads) + "".join(map(_line, groups[group])) + "\n"
    return plain


def _line(row: Row) -> str:
    kind, group, host, when, cost, success = row[:6]
    status = "success" if success else "failed"
    return _LINE.format(kind, group or "", host, java_text.seconds_text(when), f"{cost}ms", status)
