"""The commands of mqadmin that read queues. Formats: org.apache.rocketmq.tools.command.message."""

from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.parameters import BeginTimestamp, EndTimestamp, Topic, group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, shows_messages
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.options import Truth, subject
from mq.cli.runtime.status import Status
from mq.cli.show import message_text
from mq.cli.show.lazy import LongText, Mapped
from mq.cli.show.result import Result, Row
from mq.cli.show.view import View
from mq.cli.time_expressions import FORMS
from mq.cli.time_expressions import parse as parse_moment
from mq.client.operations import java_order
from mq.client.operations.columns import number, text
from mq.protocol.record import BLANK, MAGIC_BLANK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mq.cli.messages.reading import Page
    from mq.daemons.broker.store.tools import ReadOnlyFile
    from mq.protocol.message import StoredMessage

COMMANDS = {
    "message": (
        "consumeMessage",
        "printMsg",
        "printMsgByQueue",
        "dumpCompactionLog",
    )
}

CharsetName = Annotated[
    str, typer.Option("-c", "--charsetName", metavar="NAME", help="Character set of the bodies.")
]
SubExpression = Annotated[
    str,
    typer.Option(
        "-s",
        "--subExpression",
        metavar="TAGS",
        help="Only messages with one of these tags: 'TagA || TagB'.",
    ),
]


@gives(message_text.COLUMNS, data=message_text.DOCUMENT)
@shows_messages
@subject("topic")
async def print_msg(
    call: Call,
    topic: Topic,
    charset_name: CharsetName = "UTF-8",
    sub_expression: SubExpression = "*",
    begin_timestamp: BeginTimestamp = None,
    end_timestamp: EndTimestamp = None,
    print_body: Annotated[
        Truth | None,
        typer.Option("-d", "--printBody", help="Show the bodies. Default: true."),
    ] = None,
    lmq_parent_topic: Annotated[
        str | None,
        typer.Option(
            "-l",
            "--lmqParentTopic",
            metavar="TOPIC",
            help="For a light topic: the parent topic, whose brokers hold it.",
        ),
    ] = None,
) -> AsyncIterator[Result]:
    r"""Print the messages of a topic.

    Examples:
        mq printMsg Orders         every message
        mq printMsg Orders -b 15m  of the last quarter of an hour
        mq printMsg Orders --format '%k %b\n' --body json
                                   keys and bodies, a line each
    """
    from mq.cli.messages import reading
    from mq.client.operations.messages.readable_queues import readable_queues
    from mq.client.pull.pull_consumer import PullConsumer
    from mq.protocol.bodies import MessageQueue

    begin = _moment(call, begin_timestamp, "-b/--beginTimestamp")
    end = _moment(call, end_timestamp, "-e/--endTimestamp")
    page = _page(call.view, charset_name, print_body, unless_said=True)
    async with call.session() as session:
        consumer = PullConsumer(session)
        queues, closed = await readable_queues(consumer, lmq_parent_topic or topic)
        if closed:
            yield page.failed([*closed.values()])
        if lmq_parent_topic is not None:
            await session.share_route(topic, lmq_parent_topic)
            queues = [MessageQueue(topic, item.broker_name, item.queue_id) for item in queues]
        for queue in java_order.hash_order(queues, java_order.queue_hash):
            low, high = await reading.bounds(consumer, queue, begin, end)
            head = f"minOffset={low}, maxOffset={high}, {message_text.queue_text(queue)}\n"
            yield page.line(head)
            span = (low, high)
            async for result in reading.print_queue(consumer, queue, span, sub_expression, page):
                yield result
            yield page.line("-" * 56 + "\n")


def _page(view: View, charset: str, print_body: Truth | None, *, unless_said: bool) -> "Page":
    """Return the printer of messages. Raises UsageError if bodies are both hidden and formatted."""
    from mq.cli.messages.reading import Page

    with_body = unless_said if print_body is None else bool(print_body)
    shown = view.body is not None or (view.format is not None and view.format.has_bodies)
    if print_body is Truth.FALSE and shown:
        flag = "--format" if view.body is None else "--body"
        raise UsageError(
            f"-d false hides the bodies that {flag} shows", hint="leave out one of them"
        )
    return Page(message_text.codec(charset), with_body=with_body)


_TAG_COLUMNS = (text("tag", "Tag"), number("count", "Messages"))


@shows_messages
@gives(message_text.COLUMNS, _TAG_COLUMNS, data=message_text.DOCUMENT)
@subject("topic", "broker_name", "queue_id")
async def print_msg_by_queue(
    call: Call,
    topic: Topic,
    broker_name: Annotated[
        str, typer.Option("-a", "--brokerName", metavar="NAME", help="Name of the broker.")
    ],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", metavar="ID", help="Queue id.")],
    charset_name: CharsetName = "UTF-8",
    sub_expression: SubExpression = "*",
    begin_timestamp: BeginTimestamp = None,
    end_timestamp: EndTimestamp = None,
    print_msg: Annotated[
        Truth, typer.Option("-p", "--printMsg", help="Print the messages.")
    ] = Truth.FALSE,
    print_body: Annotated[
        Truth | None, typer.Option("-d", "--printBody", help="Show bodies too. Default: false.")
    ] = None,
    calculate: Annotated[
        Truth, typer.Option("-f", "--calculate", help="Count messages by tag.")
    ] = Truth.FALSE,
) -> AsyncIterator[Result]:
    """Print the messages of a queue, or count them by tag.

    Without -p and -f it prints nothing, as mqadmin.

    Examples:
        mq printMsgByQueue Orders broker-a 0 -p true -d true
                                                      the messages of a queue
        mq printMsgByQueue Orders broker-a 0 -f true  number of messages by tag
    """
    from mq.cli.messages import reading
    from mq.client.operations.errors import NotFound
    from mq.client.pull.pull_consumer import PullConsumer, PullStatus
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.names import TOOLS_CONSUMER_GROUP

    page = _page(call.view, charset_name, print_body, unless_said=False)
    begin = _moment(call, begin_timestamp, "-b/--beginTimestamp")
    end = _moment(call, end_timestamp, "-e/--endTimestamp")
    counts: Counter[str] = Counter()
    async with call.session() as session:
        consumer = PullConsumer(session, TOOLS_CONSUMER_GROUP)
        queue = MessageQueue(topic, broker_name, queue_id)
        if queue not in await consumer.queues(topic):
            raise NotFound(
                f"topic {topic} has no queue {queue_id} at broker {broker_name}",
                hint=f"see: mq topicStatus -t {topic}",
            )
        offset, last = await reading.bounds(consumer, queue, begin, end)
        while offset < last:
            pulled = await consumer.pull(queue, offset, sub_expression, decompress=False)
            offset = pulled.next_offset
            if pulled.status is not PullStatus.FOUND:
                break
            tags = (message.properties.get("TAGS", "") for message in pulled.messages)
            counts.update(tag for tag in tags if tag.strip())
            if print_msg:
                yield page.result(pulled)
    if calculate:
        yield _by_tag(counts)


def _by_tag(counts: dict[str, int]) -> Result:
    """Return the number of messages by tag, most first."""
    tags = sorted(java_order.hash_order(counts), key=lambda tag: -counts[tag])
    rows: list[Row] = [(tag, counts[tag]) for tag in tags]
    plain = "".join(f"Tag: {tag:<30} Count: {counts[tag]}\n" for tag in tags)
    return Result(_TAG_COLUMNS, rows, plain)


@gives(message_text.COLUMNS, data=message_text.DOCUMENT)
@shows_messages
@subject("topic")
async def consume_message(
    call: Call,
    topic: Topic,
    broker_name: Annotated[
        str | None,
        typer.Option("-b", "--brokerName", metavar="NAME", help="Only from this broker."),
    ] = None,
    queue_id: Annotated[
        int | None,
        typer.Option("-i", "--queueId", metavar="ID", help="Only from this queue of the broker."),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("-o", "--offset", metavar="N", help="Start at this offset of the queue."),
    ] = None,
    consumer_group: Annotated[
        str | None, group_option("--consumerGroup", text="Consumer group to read as.")
    ] = None,
    begin_timestamp: Annotated[
        str | None,
        typer.Option("-s", "--beginTimestamp", metavar="TIME", help=f"Start here: {FORMS}."),
    ] = None,
    end_timestamp: EndTimestamp = None,
    message_number: Annotated[
        int, typer.Option("-c", "--MessageNumber", metavar="N", help="At most N messages.")
    ] = 128,
) -> AsyncIterator[Result]:
    """Read messages of a topic, a queue or from an offset.

    Examples:
        mq consumeMessage Orders -c 10  read ten messages
        mq consumeMessage Orders -b broker-a -i 0 -o 0 -c 1
                                        one message of a queue
    """
    from mq.cli.messages import reading
    from mq.client.pull.pull_consumer import PullConsumer
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.names import TOOLS_CONSUMER_GROUP

    if message_number <= 0:
        raise UsageError("-c/--MessageNumber must be positive")
    if queue_id is not None and broker_name is None:
        raise UsageError("-i/--queueId needs -b/--brokerName")
    if offset is not None and queue_id is None:
        raise UsageError("-o/--offset needs -i/--queueId")
    span = _span(call, begin_timestamp, end_timestamp)
    page = reading.Page()
    async with call.session() as session:
        consumer = PullConsumer(session, consumer_group or TOOLS_CONSUMER_GROUP)
        if queue_id is None:
            async for result in reading.read_topic(consumer, topic, span, message_number, page):
                yield result
            return
        assert broker_name is not None
        queue = MessageQueue(topic, broker_name, queue_id)
        first = offset or 0
        async for result in reading.read_from(consumer, queue, first, span, message_number, page):
            yield result


def _moment(call: Call, text: str | None, flag: str) -> int | None:
    return None if text is None else parse_moment(text, flag, call.environment.clock())


def _span(call: Call, begin: str | None, end: str | None) -> tuple[int | None, int | None]:
    """Return the times of -s and -e, checked as Java checks them."""
    first = _moment(call, begin, "-s/--beginTimestamp")
    last = _moment(call, end, "-e/--endTimestamp")
    now = int(call.environment.clock() * 1000)
    if first is not None and first > now:
        raise UsageError("-s/--beginTimestamp is in the future")
    if last is not None and last > now:
        raise UsageError("-e/--endTimestamp is in the future")
    if last is not None and (first or 0) > last:
        raise UsageError("-s/--beginTimestamp is after -e/--endTimestamp")
    return first, last


_AT_ONCE = 256  # messages of a file per result


@shows_messages
@gives(message_text.COLUMNS, data=message_text.DOCUMENT)
@subject("file")
async def dump_compaction_log(
    call: Call,
    file: Annotated[
        str, typer.Option("-f", "--file", metavar="FILE", help="Log file of a compacted topic.")
    ],
) -> AsyncIterator[Result]:
    r"""Print the messages in a log file, offline: of a compacted topic, or any commit log.

    Plain output has no bodies, as mqadmin's. Reading ends after the last record of the file.

    Examples:
        mq dumpCompactionLog ~/store/commitlog/00000000000000000000
                                        the messages of a log file
        mq dumpCompactionLog ~/store/commitlog/00000000000000000000 --format '%k %b\n'
                                        keys and bodies
    """
    from mq.client.operations.local_files import cannot
    from mq.daemons.broker.store.tools import OpenFiles, ReadOnlyFile

    with OpenFiles() as opened:
        try:
            content = ReadOnlyFile(Path(file), 0, opened)
            begins = _record_end(content, 0) or not any(content.read(0, 4))
        except OSError as error:
            raise cannot("read", file, error) from error
        if not begins:
            raise CommandError(f"{file} does not start with a message", status=Status.BAD_DATA)
        for result in _dumped(file, content):
            yield result


def _dumped(file: str, content: "ReadOnlyFile") -> "Iterator[Result]":
    from mq.client.operations.messages.unpacking import Unpacked
    from mq.protocol.errors import RemoteProtocolError
    from mq.protocol.message import decode_record

    def read(place: slice, *, body: bool = True) -> "StoredMessage":
        view, begin = content.window(place.start, place.stop - place.start)
        record = bytes(view[place.start - begin : place.stop - begin])
        return decode_record(record, read_body=body, decompress=False)

    position = 0
    failures: list[str] = []
    while not failures and (ends := _record_end(content, position)):
        places: list[slice] = []
        while ends and len(places) < _AT_ONCE:
            try:
                read(slice(position, ends), body=False)
            except RemoteProtocolError as error:
                failures.append(f"{file}: at byte {position}: {error}")
                break
            places.append(slice(position, ends))
            position = ends
            ends = _record_end(content, position)
        result = message_text.result(Unpacked(Mapped(read, places)))
        result.plain = LongText(partial(_bodiless, read, places))
        result.failures = failures
        yield result


def _bodiless(read: "Callable[..., StoredMessage]", places: list[slice]) -> "Iterator[str]":
    for place in places:
        yield f"{message_text.record_text(read(place, body=False))}\n"


def _record_end(content: "ReadOnlyFile", position: int) -> int:
    """Return the end of the record at `position`; 0 if there is none: a blank record ends a log
    file.
    """
    if content.size - position < BLANK.size:
        return 0
    view, begin = content.window(position, BLANK.size)
    size, magic = BLANK.unpack_from(view, position - begin)
    if size <= 0 or position + size > content.size or magic == MAGIC_BLANK:
        return 0
    return position + int(size)
