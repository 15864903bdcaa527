"""The content of messages: it follows from their numbers, so that any change is noticed."""

from typing import Any
from zlib import crc32

from mq.protocol.message import Message

_TAGS = ("paid", "sent", "lost")
_WORDS = ("north", "east", "south", "west")


def make(number: int, topic: str, **options: Any) -> Message:
    """The message with a number."""
    return Message(
        topic,
        body_of(number),
        tag_of(number),
        keys=[f"k{number}", f"g{number % 7}"],
        properties={"number": str(number), "word": _WORDS[number % 4]},
        **options,
    )


def body_of(number: int) -> bytes:
    """The body: usually a few bytes, sometimes so many that it is sent compressed."""
    chance = crc32(b"%d" % number)
    size = 4200 + chance % 3000 if chance % 41 == 0 else chance % 300
    return b"%d " % number + (b"%08x" % chance) * (size // 8)


def tag_of(number: int) -> str:
    return _TAGS[number % 3]


def number_of(message: Any) -> int:
    """The number of a message; -1 if no client here can have sent it."""
    return number_in(bytes(message.body))


def number_in(body: bytes) -> int:
    head = body.split(b" ", 1)[0]
    return int(head) if head.isdigit() else -1


def damage(message: Any, *, only_body: bool = False) -> str:
    """Name the part of a message that differs from the sent one; usually ""."""
    number = number_of(message)
    if number < 0 or bytes(message.body) != body_of(number):
        return f"the body of message {number}"
    if only_body:
        return ""
    properties = message.properties
    if properties.get("number") != str(number) or properties.get("word") != _WORDS[number % 4]:
        return f"the properties of message {number}"
    if properties.get("TAGS") != tag_of(number):
        return f"the tag of message {number}"
    if properties.get("KEYS") != f"k{number} g{number % 7}":
        return f"the keys of message {number}"
    return ""
