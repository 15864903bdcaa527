"""Messages as a user enters them, in a form or with options."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from mq.client.operations.errors import InvalidRequest, NextStep, NotFound
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message
from mq.protocol.properties import PropertyKey, has_separator

_PLACE = re.compile(r"(.+):([0-9]{1,6})").fullmatch


@dataclass(frozen=True)
class Draft:
    """A message that a user entered. `properties` are lines of name=value; `queue` is BROKER:QUEUE,
    or a broker; `ordering_key` selects the queue if none is named, and is sent with the message.

    If `is_hex` the body is in hex, with optional blanks.
    """

    topic: str
    body: str = ""
    is_hex: bool = False
    tag: str | None = None
    keys: str = ""
    properties: tuple[str, ...] = ()
    queue: str | None = None
    delay_level: int = 0
    deliver_at: int | None = None
    ordering_key: str | None = None

    def message(self) -> Message:
        """Create the message. Raises InvalidRequest if it cannot be sent."""
        if self.delay_level and self.deliver_at is not None:
            raise InvalidRequest("a delay level and a time of delivery cannot go together")
        if self.delay_level < 0:
            raise InvalidRequest(f"a delay level of {self.delay_level}")
        for text in (self.tag or "", self.keys, self.ordering_key or ""):
            if has_separator(text):
                raise InvalidRequest("tag and keys cannot have a character 0x01 or 0x02")
        try:
            message = Message(
                self.topic,
                self.bytes(),
                self.tag,
                self.keys,
                dict(_properties(self.properties)),
                delay_level=self.delay_level,
                deliver_at=self.deliver_at,
            )
            if self.ordering_key:
                message.system[PropertyKey.SHARDING_KEY] = self.ordering_key
            message.encode_properties()
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        return message

    def bytes(self) -> bytes:
        """Return the body. Raises InvalidRequest for invalid hex."""
        if not self.is_hex:
            return self.body.encode("utf-8", "surrogatepass")
        try:
            return bytes.fromhex(self.body)
        except ValueError:
            raise InvalidRequest("the body is not in hex: two digits a byte") from None

    def choose(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        """Select one of the writable queues, always the same one for the same message.

        Raises NotFound if there is none.
        """
        able = sorted(queues)
        if self.queue:
            match = _PLACE(self.queue)
            broker, number = (match[1], int(match[2])) if match else (self.queue, None)
            able = [
                item
                for item in able
                if item.broker_name == broker and number in (None, item.queue_id)
            ]
        if not able:
            where = f" {self.queue}" if self.queue else ""
            raise NotFound(
                f"topic {self.topic} has no queue{where} that can be written to",
                hint=NextStep.LOOK_AT_ROUTE,
                subject=self.topic,
            )
        seed = self.ordering_key or f"{self.keys}\x01{self.body}"
        return able[crc32(seed.encode("utf-8", "surrogatepass")) % len(able)]


def _properties(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise InvalidRequest(f"property {line[:100]!r} is not name=value")
        yield name.strip(), value
