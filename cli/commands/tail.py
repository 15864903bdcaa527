"""`mq tail`: follows a topic."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.messages.selecting import Narrowing, choice_of
from mq.cli.parameters import topic_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import endless, gives, shows_messages
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.interruption import is_ctrl_c
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently
from mq.cli.show import message_text
from mq.cli.show.lazy import converted, pieces_of
from mq.cli.show.output import Format
from mq.cli.show.result import Result
from mq.cli.show.times import local
from mq.cli.time_expressions import FORMS
from mq.cli.time_expressions import parse as parse_moment
from mq.client.operations.messages.unpacking import Unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mq.protocol.message import StoredMessage

COMMANDS = {"message": ("tail",)}


@concurrently
@endless
@shows_messages
@gives(message_text.COLUMNS, data="The messages, as in queryMsgById.")
@subject("topic")
async def tail(
    call: Call,
    topic: Annotated[str, topic_option("Topic to follow.")],
    last: Annotated[
        int, typer.Option("--last", metavar="N", help="Start with the last N messages.")
    ] = 0,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help=f"Start here: {FORMS}.")
    ] = None,
    *,
    narrowing: Narrowing,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep",
            metavar="REGEX",
            help="Only messages whose body, as UTF-8, matches this regular expression.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Stop after N messages.")
    ] = None,
) -> AsyncIterator[Result]:
    r"""Show the messages of a topic as they arrive.

    It shows new messages until Ctrl-C: those of a queue in order, those of several queues as they
    arrive. It leaves no group, offset or other trace at brokers. A failed broker is reported, and
    followed again when it is back.

    Examples:
        mq tail Orders                       new messages, until Ctrl-C
        mq tail Orders --last 10 --limit 10  the ten newest messages
        mq tail Orders --from 15m --tag paid --format '%k %b\n'
                                             keys and bodies since then
    """
    from mq.client.operations.messages.following import Follower, body_matches

    _check(last, since, limit)
    try:
        test = None if grep is None else body_matches(re.compile(grep.encode()))
    except re.error as error:
        raise UsageError(f"--grep: {error}") from None
    begin = None if since is None else str(parse_moment(since, "--from", call.environment.clock()))
    choice = choice_of(call, topic, narrowing, begin, None)
    left = limit
    async with (
        call.session() as session,
        Follower(session, choice, test, decompress=False) as follower,
    ):
        try:
            async for news in follower.news(await follower.start(last)):
                messages = news.messages if left is None else news.messages[:left]
                yield _result(call, messages, news.failure)
                if left is not None:
                    left -= len(messages)
                    if left <= 0:
                        return
        except asyncio.CancelledError:  # Ctrl-C is the normal end
            if not is_ctrl_c():
                raise


def _check(last: int, since: str | None, limit: int | None) -> None:
    if last < 0:
        raise UsageError(f"--last {last}: must not be negative")
    if last and since is not None:
        raise UsageError("--last and --from cannot be combined")
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: must be positive")


def _result(call: Call, messages: "list[StoredMessage]", failure: str | None) -> Result:
    result = message_text.result(Unpacked(messages), _line)
    if failure is not None:
        result.failures = [failure]
    # A table for every few messages would repeat its head.
    if call.output is Format.TABLE and not call.view.chosen:
        result.columns = ()
    return result


def _line(message: "StoredMessage") -> "Iterator[str]":
    """Return a message as one line, whatever its body is."""
    where = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
    stored = local(message.store_timestamp)
    words = " ".join(filter(None, (message.tags, *message.keys))) or "-"
    yield f"{stored} {where} {_printable(words)} "
    yield from converted(pieces_of(message_text.body_text(message)[0]), _printable)
    yield "\n"


def _printable(text: str) -> str:
    """Return text without control characters for terminals."""
    return text if text.isprintable() else text.translate(_ESCAPES)


class _Escapes(dict[int, str]):
    """The replacement of each character, by its code."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        shown = letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        self[code] = shown
        return shown


_ESCAPES = _Escapes()
