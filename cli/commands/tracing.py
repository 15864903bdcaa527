"""`mq trace`: follows one message through a cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import topic_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.options import subject
from mq.cli.show.result import Result, Row
from mq.client.operations.columns import text, time
from mq.client.operations.plurals import counted

if TYPE_CHECKING:
    from mq.client.operations.messages.history import Event
    from mq.protocol.message import StoredMessage

COMMANDS = {"message": ("trace",)}

# The limit of a search without a topic: a hundred thousand topics take minutes, and those of a
# broker that does not answer have no end.
SEARCH_SECONDS = 60.0

_COLUMNS = (
    text("messageId", ""),
    text("topic", ""),
    time("time", "Time"),
    text("event", "Event"),
    text("group", "Group"),
    text("where", "Where"),
    text("detail", "Detail"),
)


@gives(_COLUMNS)
@subject("message_id", "topic")
async def trace(
    call: Call,
    message_id: Annotated[
        str,
        typer.Option(
            "-i", "--msgId", metavar="MESSAGE_ID", help="Unique id or offset id of the message."
        ),
    ],
    topic: Annotated[
        str | None,
        topic_option("Topic of the message. Default: search for it."),
    ] = None,
) -> Result:
    """Show the history of a message, and why a group received it or not.

    First come the events by time: sent, stored, delayed, retried, made a dead letter, and those in
    client traces. Then a line for each group of the topic: consumed, waiting (and the number of
    messages before it), skipped by tags, retried, dead letter; unknown if a broker does not report
    its retries or dead letters. A producer that retried may have stored two copies; imported or
    copied messages keep their id, so a message may be in several topics: each is reported. Without
    -t it searches topics for a minute and reports how many it did not reach.

    Examples:
        mq trace 7F0000010A2C18B4AAC2A1B2C3D40000  the history of a message
        mq trace 7F0000010A2C18B4AAC2A1B2C3D40000 Orders -o json
                                                   for a program
    """
    from mq.client.operations.messages.finding import Reach, find
    from mq.client.operations.messages.history import history

    rows: list[Row] = []
    async with call.admin() as admin:
        reach = Reach(seconds=SEARCH_SECONDS)
        found = await find(admin, message_id, topic, decompress=False, reach=reach)
        failures = dict.fromkeys(found.failures)  # in its order, each once
        if found.unseen:
            failures[f"not searched: {counted(found.unseen, 'topic')}; give one with -t"] = None
        several = len({message.topic for message in found.messages}) > 1
        for message in found.messages:
            events, unread = await history(admin, message)
            rows += [_row(message, event, several=several) for event in events]
            failures |= dict.fromkeys(unread)
    return Result(_COLUMNS, rows, failures=list(failures))


def _row(message: "StoredMessage", event: "Event", *, several: bool) -> Row:
    """Return a row; with several topics, a row about a group names its topic."""
    where = event.where or (message.topic if several and event.time is None else None)
    return (message.message_id, message.topic, *event[:3], where, _detail(event))


def _detail(event: "Event") -> str:
    if event.event == "dead letter" and event.time is None:  # the state of a group
        return f"{event.detail}; send it again: mq dlq resend -g {event.group}"
    return event.detail
