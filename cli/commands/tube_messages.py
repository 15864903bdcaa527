"""`mq tube send`: sends messages to TubeMQ."""

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
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import FORMS, calendar
from mq.cli.tube_clients import Topic, producer_of
from mq.client.operations.columns import number, text
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
# Bytes of bodies in flight; the client needs about four times as much memory. It is below
# MAX_UNSENT, the client's limit for one broker.
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
    """Limits the messages in flight: the client refuses what its connections cannot hold."""

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        self._news = asyncio.Event()

    async def take(self, size: int) -> None:
        """Wait until `size` more bytes may be sent; a larger message may use the whole limit."""
        while self._messages == _IN_FLIGHT or (
            self._messages and self._bytes + size > _BYTES_IN_FLIGHT
        ):
            self._news.clear()
            await self._news.wait()
        self._messages += 1
        self._bytes += size

    async def empty(self) -> None:
        """Wait until no message is in flight."""
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
    """Send all bodies. Returns a row for each sent message, the failures, and whether Ctrl-C came.

    Rows are in the order of replies. After Ctrl-C nothing more is sent, and sends in flight finish.
    Raises OSError if nothing was sent because the input cannot be read.
    """
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
            except OSError as error:  # bodies read before the error are sent and reported
                broken = error
            await room.empty()
        except asyncio.CancelledError:
            interrupted = True
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
    if broken is not None:
        if not rows and not failures:
            raise broken
        failures.append(f"cannot read past message {taken}: {broken.strerror}")
    if interrupted:
        failures.append(f"interrupted: nothing was sent after message {taken}")
    return rows, failures, interrupted


def _message_time(call: Call, given: str | None) -> str | None:
    """Return a time in any form as TubeMQ's `yyyyMMddHHmm`. Raises UsageError."""
    if given is None or re.fullmatch(r"\d{12}", given):
        return given
    return calendar(given, "--time", call.environment.clock()).strftime("%Y%m%d%H%M")


def _attributes(given: list[str], type_: str | None, time: str | None) -> dict[str, str]:
    """Return attributes by name. Raises UsageError for an invalid attribute, type or time."""
    from mq.protocol.tube.payload import attribute_text

    found = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"--attribute {item}: expected KEY=VALUE")
        found[key] = value
    try:
        attribute_text(found, type_, time)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return found


@contextmanager
def _opened(call: Call, body: str | None, file: str) -> Iterator[AsyncIterator[bytes]]:
    """Return the bodies to send: a single one, or the lines of a file."""
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
    """Yield the non-empty lines.

    A line that is too long is yielded as it was cut, so that the client refuses it: without a
    carriage return at the cut it could be short enough to be sent.
    """
    async for lines in source:
        for line in lines:
            if line.strip():
                yield line if len(line) > longest else line.rstrip(b"\r\n")
