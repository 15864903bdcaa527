"""`mq tube consume` and `mq tube tail`: read TubeMQ messages."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import endless, gives, of_tube
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.bodies import text_of
from mq.cli.show.lazy import LongText, Mapped, Text, converted, pieces_of
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import seconds
from mq.cli.tube_clients import Topic, own_masters, own_options
from mq.client.operations.columns import number, text

if TYPE_CHECKING:
    from mq.client.tube.message import TubeBatch, TubeMessage

COMMANDS = {"tube": ("tube consume", "tube tail")}

Types = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE[,…]",
        help="Only messages of these types (filter items), separated by commas.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", help="Stop after N messages."),
]

_MESSAGES = (
    text("partition", "Partition"),
    number("messageId", "Message id"),
    text("type", "Type"),
    text("time", "Time"),
    text("attributes", ""),
    text("body", "Body"),
    text("bodyEncoding", ""),
)


@of_tube
@gives(_MESSAGES)
@endless
@concurrently
@subject("topic", "group")
async def tube_consume(
    call: Call,
    topic: Topic,
    group: Annotated[str, group_option(text="Consumer group to join.")],
    types: Types = None,
    first: Annotated[
        bool,
        typer.Option("--first", help="Start at the oldest message if the group has no offset yet."),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            parser=seconds,
            help="Stop when nothing arrives for this long.",
        ),
    ] = None,
    limit: Limit = None,
) -> AsyncIterator[Result]:
    """Consume a topic of TubeMQ as a member of a group, and confirm the shown messages.

    It runs until Ctrl-C, --wait or --limit. The master assigns partitions to a new member in its
    next balance round, after half a minute to a minute. Messages are confirmed by reply: if --limit
    cuts a reply short, all its messages are delivered again.

    Examples:
        mq tube consume Orders billing --wait 2  consume until nothing arrives for 2 s
        mq tube consume Orders billing --first --limit 1
                                                 one message, from the oldest on
    """
    _check_limit(limit)
    from mq.cli.tube_reading import batches, confirm
    from mq.client.tube.consumer import TubeConsumer
    from mq.client.tube.options import ConsumeFrom, TubeConsumerOptions

    options = TubeConsumerOptions(
        consume_from=ConsumeFrom.FIRST if first else ConsumeFrom.LATEST,
        heartbeat_interval=1.0,  # assigns partitions; a user waits for them
        **own_options(call),
    )
    async with TubeConsumer(own_masters(call), group, _wanted(topic, types), options) as consumer:
        async for batch, shown in batches(consumer, wait, limit):
            yield _shown(batch, shown)
            if shown == len(batch.messages):
                await confirm(consumer, batch)


@of_tube
@gives(_MESSAGES)
@endless
@concurrently
@subject("topic")
async def tube_tail(
    call: Call, topic: Topic, types: Types = None, limit: Limit = None
) -> AsyncIterator[Result]:
    """Show the messages of a topic of TubeMQ as they arrive.

    It shows new messages of all partitions until Ctrl-C, regardless of other consumers: it is the
    only member of its group, and chooses its partitions, which masters support since release 1.0.
    Brokers keep the group's offsets for some days.

    Examples:
        mq tube tail Orders                        new messages, until Ctrl-C
        mq tube tail Orders --type paid --limit 1  the next one of a type
    """
    _check_limit(limit)
    from mq.cli.tube_reading import all_connected, batches, confirm
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.options import ConsumeFrom, TubeConsumerOptions

    options = TubeConsumerOptions(
        consume_from=ConsumeFrom.LATEST_ALWAYS,
        confirm_locally=True,
        **own_options(call),
    )
    group = f"mq_tail_{int(call.environment.clock() * 1000)}"
    wanted = _wanted(topic, types)
    async with TubeBalanceConsumer(own_masters(call), group, wanted, options) as consumer:
        async with all_connected(consumer) as count:
            if not count:
                raise CommandError(
                    f"topic {topic} has no readable partition",
                    hint="list topics: mq tube topics",
                    status=Status.NOT_FOUND,
                )
            async for batch, shown in batches(consumer, None, limit):
                yield _shown(batch, shown)
                await confirm(consumer, batch)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: must be positive")


def _wanted(topic: str, types: str | None) -> dict[str, list[str] | None]:
    return {topic: None if types is None else types.split(",")}


def _shown(batch: "TubeBatch", count: int) -> Result:
    """Return the messages of a reply. Each is formatted only when it is printed: bodies may be
    long.
    """
    messages, key = batch.messages[:count], batch.partition_key

    def lines() -> Iterator[str]:
        for message in messages:
            yield f"{key} {message.message_id} {message.message_type or '-'} "
            yield from converted(pieces_of(_body(message.body)[0]), _printable)
            yield "\n"

    return Result(_MESSAGES, Mapped(partial(_row, key), messages), LongText(lines))


def _row(key: str, message: "TubeMessage") -> Row:
    return (
        key,
        message.message_id,
        message.message_type or "",
        message.message_time or "",
        message.attribute_text,
        *_body(message.body),
    )


def _body(body: bytes) -> tuple[Text, str]:
    shown, encoding = text_of(body)
    return shown, "text" if encoding == "utf-8" else encoding


def _printable(words: str) -> str:
    """Return text without control characters for terminals."""
    if words.isprintable():
        return words
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in words
    )
