"""TubeMQ's messages: sending."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, of_tube, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row, number, text
from mq.cli.time_expressions import FORMS, calendar
from mq.cli.tube_clients import Topic, producer_of
from mq.client.operations.plurals import counted

if TYPE_CHECKING:
    from mq.client.operations.messages.line_source import LineSource
    from mq.client.tube.producer import TubeProducer

COMMANDS = {"tube": ("tube send",)}

_SENT = (
    text("topic", "Topic"),
    text("partition", "Partition"),
    number("messageId", "Message id"),
    number("appendOffset", "Offset"),
)
_IN_FLIGHT = 500  # messages
# Of bodies, which the client has some four times while it sends them; it lets less than MAX_UNSENT
# wait for one broker.
_BYTES_IN_FLIGHT = 16 * 1024 * 1024


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
    keywords = {"attributes": named, "message_type": type_, "message_time": time}
    with _opened(call, body, lines or "-") as bodies:
        if call.dry_run:
            count = sum([1 async for _ in bodies])
            call.would("send", topic, counted(count, "message"))
            return Result(_SENT)
        async with producer_of(call, topic) as producer:
            rows, failures, interrupted = await _send_all(producer, topic, bodies, keywords)
    result = Result(_SENT, rows, failures=failures)
    if interrupted:
        result.status = Status.INTERRUPTED
    elif failures and not rows:
        result.status = Status.UNAVAILABLE
    return result


class _Room:
    """For messages that are under way: the client refuses what its connections cannot hold."""

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        self._news = asyncio.Event()

    async def take(self, size: int) -> None:
        """Wait until so many bytes more may go; a message has all of the room if it needs that."""
        while self._messages == _IN_FLIGHT or (
            self._messages and self._bytes + size > _BYTES_IN_FLIGHT
        ):
            self._news.clear()
            await self._news.wait()
        self._messages += 1
        self._bytes += size

    async def empty(self) -> None:
        """Wait until no message is under way."""
        while self._messages:
            self._news.clear()
            await self._news.wait()

    def leave(self, size: int) -> None:
        self._messages -= 1
        self._bytes -= size
        self._news.set()


async def _send_all(
    producer: "TubeProducer", topic: str, bodies: AsyncIterator[bytes], keywords: dict[str, Any]
) -> tuple[list[Row], list[str], bool]:
    """A row for each that was sent, as the answers come, why the others were not, and whether
    Ctrl-C came: then no more goes out, and what is on its way ends. Raises OSError where nothing is
    sent since nothing can be read."""
    from mq.client.errors import MQError

    rows: list[Row] = []
    failures: list[str] = []
    room = _Room()

    async def send(number_: int, body: bytes) -> None:
        try:
            sent = await producer.send(topic, body, **keywords)
        except (MQError, ValueError) as error:
            failures.append(f"message {number_}: {error}")
        else:
            partition = str(sent.partition.key)
            rows.append((topic, partition, sent.message_id, sent.append_offset))
        finally:
            room.leave(len(body))

    taken = 0
    broken: OSError | None = None
    interrupted = False
    async with asyncio.TaskGroup() as under_way:
        try:
            try:
                async for body in bodies:
                    await room.take(len(body))
                    taken += 1
                    under_way.create_task(send(taken, body))
            except OSError as error:  # what was read before it is sent, and told of
                broken = error
            await room.empty()
        except asyncio.CancelledError:
            interrupted = True
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
    if broken is not None:
        if not rows and not failures:
            raise broken
        failures.append(f"nothing could be read behind message {taken}: {broken.strerror}")
    if interrupted:
        failures.append(f"interrupted: nothing was sent behind message {taken}")
    return rows, failures, interrupted


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


@contextmanager
def _opened(call: Call, body: str | None, file: str) -> Iterator[AsyncIterator[bytes]]:
    """The bodies to send: one, or the lines of a file."""
    from mq.cli.messages.producing import opened
    from mq.client.operations.messages.line_source import LineSource, is_file
    from mq.protocol.tube.names import MAX_MESSAGE_SIZE

    if body is not None:
        yield _only(body.encode())
        return
    more = is_file(None if file == "-" else Path(file))
    with opened(call, file) as read:
        longest = MAX_MESSAGE_SIZE + len(b"\r")
        with LineSource(read, longest=longest, is_file=more) as source:
            yield _bodies(source, longest)


async def _only(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _bodies(source: "LineSource", longest: int) -> AsyncIterator[bytes]:
    """The lines that are not empty. One that is too long comes as it was cut, for the client to
    refuse: without a \\r where it was cut it would be sent."""
    async for lines in source:
        for line in lines:
            if line.strip():
                yield line if len(line) > longest else line.rstrip(b"\r\n")
