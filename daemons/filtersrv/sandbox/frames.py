"""What goes between a filter server and a sandbox: fixed binary frames with hard bounds.

What the sandbox sends is as hostile as what runs in it: it is never unpickled, never evaluated, and
no length in it is believed. A filter server asks one thing at a time, knows how long the answer may
be before it comes, and ends a sandbox that sends anything else.

    request   kind u8 | number u32 | count u32 | length u32 | as many bytes
    answer    status u8 | number u32 | count u32 | bytes

A LOAD has `group, class name, source` as its bytes, each with its length before it (u32); a MATCH
has `count` records of messages as a pull brings them. The answer to a MATCH with status DONE has
the same count and a bit for each record, lowest bit first, 1 for those that match. With any other
status, count is the length of a UTF-8 text that says what went wrong.
"""

import struct
from enum import IntEnum

REQUEST = struct.Struct(
    ">B"  # kind: LOAD or MATCH
    "I"  # number: the answer has the same
    "I"  # count of messages
    "I"  # bytes that follow
)
ANSWER = struct.Struct(
    ">B"  # status
    "I"  # number of the request
    "I"  # count of messages, or bytes of text that follow
)
LENGTH = struct.Struct(">I")

LOAD, MATCH = 1, 2

# The number of the first answer, which nobody asked for: that the process is confined.
CONFINED = 0

# Longer texts are cut by the sandbox, and end it where they are not.
MOST_TEXT = 1000

OUT_OF_MEMORY = 3  # the exit status of a sandbox whose class wanted more than it may have


class Status(IntEnum):
    """How a request ended."""

    DONE = 0
    FAILED = 1  # the class is wrong, or has raised: the text says where
    NOT_CONFINED = 2  # this machine allows no sandbox: the text says why


def bits(count: int) -> int:
    """The bytes that a bit for each of so many messages takes."""
    return (count + 7) // 8


def join_texts(*texts: bytes) -> bytes:
    """Texts with their lengths before them."""
    return b"".join(part for text in texts for part in (LENGTH.pack(len(text)), text))


def split_texts(data: bytes) -> list[bytes]:
    """What `join_texts` has joined; read by the sandbox, from a filter server that it trusts."""
    texts, position = [], 0
    while position < len(data):
        (length,) = LENGTH.unpack_from(data, position)
        position += LENGTH.size
        texts.append(data[position : position + length])
        position += length
    return texts
