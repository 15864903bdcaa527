"""TubeMQ's messages: sending."""

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.moments import FORMS, calendar
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, of_tube, writes
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row, number, text
from mq.cli.tube_clients import Topic, producer_of
from mq.client.operations.counted import counted

if TYPE_CHECKING:
    from mq.client.tube.producer import TubeProducer

COMMANDS = {"tube": ("tube send",)}

_SENT = (
    text("topic", "Topic"),
    text("partition", "Partition"),
    number("messageId", "Message id"),
    number("appendOffset", "Offset"),
)
_IN_FLIGHT = 500


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
    keywords = {"attributes": named, "message_type": type_, "message_time": time}
    async with producer_of(call, topic) as producer:
        rows, failures = await _send_all(producer, topic, bodies, keywords)
    result = Result(_SENT, rows, failures=failures)
    if failures and not rows:
        result.status = Status.UNAVAILABLE
    return result


async def _send_all(
    producer: "TubeProducer", topic: str, bodies: Sequence[bytes], keywords: dict[str, Any]
) -> tuple[list[Row], list[str]]:
    """A row for each that was sent, as the answers come, and why the others were not."""
    from mq.client.errors import MQError

    rows: list[Row] = []
    failures: list[str] = []
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def send(number_: int, body: bytes) -> None:
        async with slots:
            try:
                sent = await producer.send(topic, body, **keywords)
            except (MQError, ValueError) as error:
                failures.append(f"message {number_}: {error}")
            else:
                partition = str(sent.partition.key)
                rows.append((topic, partition, sent.message_id, sent.append_offset))

    await asyncio.gather(*(send(number_, body) for number_, body in enumerate(bodies, 1)))
    return rows, failures


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
