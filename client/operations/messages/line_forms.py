"""Converts lines of input to messages: text with an optional key, or JSON."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mq.client.machine import clock
from mq.client.operations.errors import InvalidRequest
from mq.client.operations.messages.delays import DelayLimits
from mq.client.operations.messages.line_source import LineSource
from mq.client.operations.messages.lines import (
    MOST_BESIDE,
    Line,
    MalformedLine,
    message_again,
    messages_of,
)
from mq.client.operations.messages.producing import Counting, Producing
from mq.client.operations.messages.rate import Rate
from mq.protocol.message import Message
from mq.protocol.properties import PropertyKey

_JSON_FACTOR = 6  # in JSON a byte may take this many characters: \u0000


def longest(max_body: int, *, json: bool) -> int:
    """Return the maximum length of a line in bytes."""
    return (max_body * _JSON_FACTOR if json else max_body) + MOST_BESIDE


#: Converts a line to messages. Raises MalformedLine, InvalidRequest, ValueError.
Form = Callable[[bytes], list[Message]]


@dataclass(frozen=True)
class Common:
    """The common properties of all messages of an input; a line of JSON may override them.

    ``delay`` is as the user wrote it; a fixed ``key`` applies to lines without a key.
    """

    topic: str
    tag: str | None = None
    key: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    delay: int | str | None = None
    taken: DelayLimits = field(default_factory=DelayLimits)

    def message(self, body: bytes, key: str = "") -> Message:
        """Create a message with a body. Raises ValueError, InvalidRequest."""
        message = Message(self.topic, body, self.tag, key or self.key, self.properties)
        if self.delay is not None:
            self._delay(message, self.delay)
        return message

    def message_of(self, line: Line) -> Message:
        """Create the message of a line of JSON. Raises MalformedLine, InvalidRequest."""
        properties = dict(self.properties)
        if self.tag:
            properties[PropertyKey.TAGS] = self.tag
        if self.key:
            properties[PropertyKey.KEYS] = self.key
        message = message_again(
            self.topic, line.body, line.flag, properties | line.properties, new_id=True
        )
        delay = self.delay if line.delay is None else line.delay
        if delay is not None:
            self._delay(message, delay)
        return message

    def _delay(self, message: Message, said: int | str) -> None:
        self.taken.delay(message, said, int(clock.time() * 1000))


def text_form(common: Common, separator: bytes = b"") -> Form:
    """One message per line; the text before the first `separator` is its key.

    As with kcat, a line without the separator has no key.
    """

    def message(line: bytes) -> list[Message]:
        if separator:
            key, found, body = line.partition(separator)
            if found:
                return [common.message(body, _key_text(key))]
        return [common.message(line)]

    return message


def _key_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise MalformedLine("its key is not UTF-8") from None


def json_form(common: Common) -> Form:
    """One message per line of JSON, as written by exports, or several as printed by `-o json`."""

    def messages(line: bytes) -> list[Message]:
        return [common.message_of(item) for item in messages_of(line)] if line.strip() else []

    return messages


@dataclass
class Feed:
    """Passes the lines of an input to a sender or a counter.

    Attributes:
        longest: the limit of a line in bytes; ``max_body`` that of a body.
        taken: the number of lines read.
        empty: the number of empty lines, which are skipped.
    """

    producing: Producing | Counting
    form: Form
    longest: int
    max_body: int
    rate: Rate
    taken: int = 0
    empty: int = 0

    async def run(self, source: LineSource) -> None:
        """Process all lines, until the end or until sending has stopped. Raises OSError."""
        producing, number = self.producing, 0
        async for lines in source:
            if not lines:
                producing.idle()
            for line in lines:
                self.taken = number = number + 1
                if line:
                    await self._one(number, line)
                else:
                    self.empty += 1
                if producing.stopped is not None:
                    return
        await producing.flush()

    async def whole(self, body: bytes) -> None:
        """Process the whole input as one message."""
        self.taken = 1
        await self._one(1, body)
        await self.producing.flush()

    async def _one(self, number: int, line: bytes) -> None:
        try:
            self._check(len(line), self.longest)
            messages = self.form(line)
            for message in messages:
                if not message.body:
                    raise MalformedLine("an empty body, which no broker takes")
                self._check(len(message.body), self.max_body)
        except (MalformedLine, InvalidRequest, ValueError) as error:
            self.producing.refuse(number, str(error))
            return
        try:
            for message in messages:
                if self.rate.pauses:
                    self.producing.idle()
                await self.rate.wait(1)
                await self.producing.put(number, message)
        except BaseException:
            self.producing.unsent.append(number)
            raise

    def _check(self, size: int, limit: int) -> None:
        if size > limit:
            raise MalformedLine(
                f"over {self.max_body:,} bytes, the most that the topic's brokers take "
                "(maxMessageSize)"
            )
