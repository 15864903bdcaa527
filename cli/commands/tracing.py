"""Following one message through a cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import topic_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.options import subject
from mq.cli.show.result import Result, Row, text, time
from mq.client.operations.plurals import counted

if TYPE_CHECKING:
    from mq.client.operations.messages.history import Event
    from mq.protocol.message import StoredMessage

COMMANDS = {"message": ("trace",)}

# For which a message is looked for where no topic is given: a hundred thousand topics take minutes,
# those of a broker that does not answer for ever.
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
    """Show what has become of a message, and why a group has it or not.

    First what happened, by time: sent, stored, delayed, retried, made a dead letter, and what the
    traces of clients say. Then a line for each group that reads the topic: consumed, waiting (and
    how many messages come before), left out by its tags, retried, dead letter; unknown where a
    broker does not say which retries or dead letters it has. A producer that has tried twice may
    have stored two; what was imported or copied has the id of its origin, so a message may be in
    several topics: each is reported. Without -t topics are looked into for a minute; how many were
    left out is said.

    Examples:
        mq trace 7F0000010A2C18B4AAC2A1B2C3D40000  what has become of a message
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
            failures[f"not looked into: {counted(found.unseen, 'topic')}; give one with -t"] = None
        several = len({message.topic for message in found.messages}) > 1
        for message in found.messages:
            events, unread = await history(admin, message)
            rows += [_row(message, event, several=several) for event in events]
            failures |= dict.fromkeys(unread)
    return Result(_COLUMNS, rows, failures=list(failures))


def _row(message: "StoredMessage", event: "Event", *, several: bool) -> Row:
    """A line; one about what a group makes of it says in which topic, where there are several."""
    where = event.where or (message.topic if several and event.time is None else None)
    return (message.message_id, message.topic, *event[:3], where, _detail(event))


def _detail(event: "Event") -> str:
    if event.event == "dead letter" and event.time is None:  # what a group makes of it
        return f"{event.detail}; send it again: mq dlq resend -g {event.group}"
    return event.detail
