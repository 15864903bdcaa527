"""From the lines of an input to messages: text with a key before it, or JSON."""

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

_JSON_FACTOR = 6  # in JSON a byte of a body may be so many: \u0000


def longest(max_body: int, *, json: bool) -> int:
    """How many bytes a line may have."""
    return (max_body * _JSON_FACTOR if json else max_body) + MOST_BESIDE


#: What a line means. Raises MalformedLine, InvalidRequest, ValueError.
Form = Callable[[bytes], list[Message]]


@dataclass(frozen=True)
class Common:
    """What all messages of an input have, unless a line of JSON says otherwise.

    ``delay`` is as people say it; a fixed ``key`` is for lines that have none.
    """

    topic: str
    tag: str | None = None
    key: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    delay: int | str | None = None
    taken: DelayLimits = field(default_factory=DelayLimits)

    def message(self, body: bytes, key: str = "") -> Message:
        """A message of a body. Raises ValueError, InvalidRequest."""
        message = Message(self.topic, body, self.tag, key or self.key, self.properties)
        if self.delay is not None:
            self._delay(message, self.delay)
        return message

    def message_of(self, line: Line) -> Message:
        """A message of a line of JSON. Raises MalformedLine, InvalidRequest."""
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
    """A message a line; what stands before the first `separator` is its key.

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
    """A message a line of JSON, as exports write it, or several as `-o json` does."""

    def messages(line: bytes) -> list[Message]:
        return [common.message_of(item) for item in messages_of(line)] if line.strip() else []

    return messages


@dataclass
class Feed:
    """Gives the lines of an input to what sends or counts them.

    Attributes:
        longest: bytes of a line; ``max_body`` bytes of a body.
        taken: how many lines were taken in.
        empty: how many of them had nothing in them, and were passed over.
    """

    producing: Producing | Counting
    form: Form
    longest: int
    max_body: int
    rate: Rate
    taken: int = 0
    empty: int = 0

    async def run(self, source: LineSource) -> None:
        """All lines, until the end or until nothing can be sent any more. Raises OSError."""
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
        """All of the input as one message."""
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
