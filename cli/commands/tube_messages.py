"""TubeMQ's messages: sending, consuming, following, and how fast that is."""

import asyncio
import base64
import re
import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.moments import FORMS, calendar, seconds
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import endless, gives, of_tube, writes
from mq.cli.runtime.ending import WORDS, received
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently, in_bulk
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row, number, text
from mq.cli.tube_clients import Topic, client_options, masters_of
from mq.client.operations.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mq.client.tube.message import TubeBatch
    from mq.client.tube.producer import TubeProducer

COMMANDS = {"tube": ("tube send", "tube consume", "tube tail", "tube bench")}

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


def _options(call: Call) -> dict[str, Any]:
    return client_options(call, call.credentials())


def _masters(call: Call) -> list[str]:
    return [str(address) for address in masters_of(call)]


_SENT = (
    text("topic", "Topic"),
    text("partition", "Partition"),
    number("messageId", "Message id"),
    number("appendOffset", "Offset"),
)


@of_tube
@gives(_SENT)
@writes
@concurrently
@subject("topic", "body")
async def tube_send(
    call: Call,
    topic: Topic,
    body: Annotated[
        str | None,
        typer.Option("-p", "--body", metavar="TEXT", help="Body of the message, as UTF-8."),
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(
            "--lines",
            metavar="FILE",
            help="Send each line of this file as a message; -: standard input.",
        ),
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="Type of the message, which consumers filter by."
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="TIME", help=f"Time of the message: yyyyMMddHHmm, or {FORMS}."
        ),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="KEY=VALUE", help="Attribute of the message."),
    ] = None,
) -> Result:
    """Send a message to a topic of TubeMQ, or each line of a file.

    Examples:
        mq tube send Orders 'one message'       send a message
        mq tube send Orders --lines orders.txt  send each line of a file
    """
    if (body is None) == (lines is None):
        raise UsageError("one of -p/--body and --lines is required")
    time = _message_time(call, time)
    named = _attributes(attributes or [], type_, time)
    bodies = [body.encode()] if body is not None else list(_lines(lines or "-"))
    if call.dry_run:
        call.would("send", topic, counted(len(bodies), "message"))
        return Result(_SENT)
    rows: list[Row] = []
    failures: list[str] = []
    async with _producer(call, topic) as producer:
        slots = asyncio.Semaphore(500)

        async def send(number_: int, one: bytes) -> None:
            from mq.client.errors import MQError

            async with slots:
                try:
                    sent = await producer.send(
                        topic, one, attributes=named, message_type=type_, message_time=time
                    )
                except (MQError, ValueError) as error:
                    failures.append(f"message {number_}: {error}")
                else:
                    key = str(sent.partition.key)
                    rows.append((topic, key, sent.message_id, sent.append_offset))

        await asyncio.gather(*(send(n, one) for n, one in enumerate(bodies, 1)))
    result = Result(_SENT, rows, failures=failures)
    if failures and not rows:
        result.status = Status.UNAVAILABLE
    return result


def _producer(call: Call, topic: str) -> "TubeProducer":
    from mq.client.tube.producer import TubeProducer
    from mq.client.tube.producer_options import TubeProducerOptions

    return TubeProducer(_masters(call), [topic], TubeProducerOptions(**_options(call)))


def _message_time(call: Call, given: str | None) -> str | None:
    """As messages of TubeMQ have it, `yyyyMMddHHmm`, of a time in any form. Raises UsageError."""
    if given is None or re.fullmatch(r"\d{12}", given):
        return given
    return calendar(given, "--time", call.environment.clock()).strftime("%Y%m%d%H%M")


def _attributes(given: list[str], type_: str | None, time: str | None) -> dict[str, str]:
    """Attributes by name. Raises UsageError for what is none, no type or no message time."""
    from mq.protocol.tube.payload import attribute_text

    found = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--attribute {item}: it is KEY=VALUE")
        found[key] = value
    try:
        attribute_text(found, type_, time)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return found


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a file that are not empty."""
    if path == "-":
        yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer if line.strip())
        return
    with open(path, "rb") as file:
        yield from (line.rstrip(b"\r\n") for line in file if line.strip())


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
    group: Annotated[
        str, typer.Option("-g", "--group", metavar="GROUP", help="Consumer group to join.")
    ],
    types: Types = None,
    first: Annotated[
        bool,
        typer.Option(
            "--first", help="Start at the oldest message where the group has no offset yet."
        ),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            parser=seconds,
            help="Stop when nothing comes for this long.",
        ),
    ] = None,
    limit: Limit = None,
) -> AsyncIterator[Result]:
    """Consume a topic of TubeMQ as a member of a group, and confirm what is shown.

    Until Ctrl-C, unless --wait or --limit end it. A master gives a new member its partitions with
    its next balance, which may take it half a minute or a whole one. Messages are confirmed by the
    replies in which they come: of a reply that --limit cuts short all come again.

    Examples:
        mq tube consume Orders billing --wait 2  consume until nothing comes for 2 s
        mq tube consume Orders billing --first --limit 1
                                                 one message, from the oldest on
    """
    _check_limit(limit)
    from mq.cli.tube_reading import batches, confirm
    from mq.client.tube.consumer import TubeConsumer
    from mq.client.tube.options import ConsumeFrom, TubeConsumerOptions

    options = TubeConsumerOptions(
        consume_from=ConsumeFrom.FIRST if first else ConsumeFrom.LATEST,
        heartbeat_interval=1.0,  # with which partitions are given: somebody waits for them
        **_options(call),
    )
    async with TubeConsumer(_masters(call), group, _wanted(topic, types), options) as consumer:
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
    """Show the messages of a topic of TubeMQ as they come.

    From now on, until Ctrl-C, of all partitions, whoever else consumes them: it is a member of a
    group of its own that chooses its partitions, which masters know from release 1.0 on. Brokers
    remember that group for some days.

    Examples:
        mq tube tail Orders                        what comes from now on, until Ctrl-C
        mq tube tail Orders --type paid --limit 1  the next one of a type
    """
    _check_limit(limit)
    from mq.cli.tube_reading import all_connected, batches, confirm
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.options import ConsumeFrom, TubeConsumerOptions

    options = TubeConsumerOptions(
        consume_from=ConsumeFrom.LATEST_ALWAYS,
        confirm_locally=True,
        **_options(call),
    )
    group = f"mq_tail_{int(call.environment.clock() * 1000)}"
    wanted = _wanted(topic, types)
    async with TubeBalanceConsumer(_masters(call), group, wanted, options) as consumer:
        async with all_connected(consumer) as count:
            if not count:
                raise CommandError(
                    f"topic {topic} has no partition that can be read",
                    hint="list what there is: mq tube topics",
                    status=Status.NOT_FOUND,
                )
            async for batch, shown in batches(consumer, None, limit):
                yield _shown(batch, shown)
                await confirm(consumer, batch)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: it must be positive")


def _wanted(topic: str, types: str | None) -> dict[str, list[str] | None]:
    return {topic: None if types is None else types.split(",")}


def _shown(batch: "TubeBatch", count: int) -> Result:
    rows: list[Row] = []
    plain = []
    for message in batch.messages[:count]:
        body, encoding = _body(message.body)
        rows.append(
            (
                batch.partition_key,
                message.message_id,
                message.message_type or "",
                message.message_time or "",
                message.attribute_text,
                body,
                encoding,
            )
        )
        words = message.message_type or "-"
        plain.append(f"{batch.partition_key} {message.message_id} {words} {_printable(body)}\n")
    return Result(_MESSAGES, rows, "".join(plain))


def _body(body: bytes) -> tuple[str, str]:
    try:
        return body.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def _printable(words: str) -> str:
    """What a terminal shows and does not obey."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in words
    )


_BENCH = (
    text("role", "Role"),
    number("messages", "Messages"),
    number("perSecond", "Per second"),
    number("megabytesPerSecond", "MB/s"),
    number("medianMillis", "Median (ms)"),
    number("p99Millis", "p99 (ms)"),
    number("maxMillis", "Max (ms)"),
)


@of_tube
@gives(_BENCH)
@writes
@in_bulk
@subject("topic")
async def tube_bench(
    call: Call,
    topic: Topic,
    messages: Annotated[
        int, typer.Option("--messages", metavar="N", help="Number of messages.")
    ] = 100_000,
    size: Annotated[
        int, typer.Option("--size", metavar="BYTES", help="Size of each message.")
    ] = 1024,
    producers: Annotated[
        int,
        typer.Option(
            "--producers",
            metavar="N",
            help="Number of producers, each with a connection to every broker.",
        ),
    ] = 8,
    in_flight: Annotated[
        int, typer.Option("--in-flight", metavar="N", help="Sends in flight per producer.")
    ] = 64,
    read: Annotated[
        bool,
        typer.Option(
            "--read", help="Read the topic at the same time, until all messages are there."
        ),
    ] = False,
) -> Result:
    """Measure how fast a topic of TubeMQ can be written and read.

    One process does it all, so a fast cluster shows what this client can do. The reader is a
    member of a group of its own that chooses all partitions.

    Examples:
        mq tube bench Orders --messages 1000         time a thousand sends of 1 KiB
        mq tube bench Orders --messages 1000 --read  and read them at the same time
    """
    options = {
        "--messages": messages,
        "--size": size,
        "--producers": producers,
        "--in-flight": in_flight,
    }
    for name, value in options.items():
        if value < 1:
            raise UsageError(f"{name} {value}: it must be positive")
    if call.dry_run:
        call.would("send", topic, f"{counted(messages, 'message')} of {size} bytes")
        return Result(_BENCH)
    from mq.cli.tube_load import measure_sending

    clients = [_producer(call, topic) for _ in range(producers)]
    sending = measure_sending(clients, topic, messages, size, in_flight)
    if read:
        rows = await _beside(_reading(call, topic, messages, size), sending)
    else:
        rows = [await sending]
    signal = received()
    cut = [] if signal is None else [f"{WORDS[signal]}: this is what was measured until then"]
    return Result(_BENCH, rows, failures=cut)


def _reading(
    call: Call, topic: str, messages: int, size: int
) -> "Callable[[asyncio.Event], Coroutine[Any, Any, Row]]":
    """What reads so many messages that come from now on, once it is given the event that says that
    it has begun."""
    from mq.cli.tube_load import measure_reading
    from mq.client.tube.balance_consumer import TubeBalanceConsumer
    from mq.client.tube.options import ConsumeFrom, TubeConsumerOptions

    options = TubeConsumerOptions(
        consume_from=ConsumeFrom.LATEST_ALWAYS, confirm_locally=True, **_options(call)
    )
    group = f"mq_bench_{int(call.environment.clock() * 1000)}"
    consumer = TubeBalanceConsumer(_masters(call), group, [topic], options)
    return lambda ready: measure_reading(consumer, messages, size, ready)


async def _beside(
    read: "Callable[[asyncio.Event], Coroutine[Any, Any, Row]]",
    sending: "Coroutine[Any, Any, Row]",
) -> list[Row]:
    """Send once the reader has begun; both rows when all has been read."""
    ready = asyncio.Event()
    reading = asyncio.create_task(read(ready))
    try:
        await ready.wait()
        sent = await sending
        if received() is not None:
            reading.cancel()
        return [sent, await reading]
    finally:
        sending.close()  # does nothing but where it was not begun
        reading.cancel()
        await asyncio.wait([reading])
