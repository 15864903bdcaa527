"""The protocol between a filter server and a sandbox: fixed binary frames with hard bounds.

Data of the sandbox is as hostile as the class in it: it is never unpickled, never evaluated, and no
length in it is trusted. A filter server sends one request at a time, knows the length of the reply
in advance, and ends a sandbox that sends anything else.

  request   kind u8 | number u32 | count u32 | length u32 | as many bytes
  answer    status u8 | number u32 | count u32 | bytes

A LOAD has `group, class name, source` as its bytes, each preceded by its length (u32); a MATCH has
`count` message records in the form of a pull. The answer to a MATCH with status DONE has the same
count and a bit for each record, lowest bit first, 1 for a match. With any other status, count is
the length of a UTF-8 text with the error.
"""

import struct
from enum import IntEnum

REQUEST = struct.Struct(
    ">B"  # kind: LOAD or MATCH
    "I"  # number: repeated in the answer
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

# The number of the first answer, without a request: the process is confined.
CONFINED = 0

# The sandbox cuts longer texts; one that sends longer texts is ended.
MOST_TEXT = 1000

OUT_OF_MEMORY = 3  # the exit status of a sandbox whose class exceeded its memory limit


class Status(IntEnum):
    """The outcome of a request."""

    DONE = 0
    FAILED = 1  # the class is invalid, or has raised: the text says where
    NOT_CONFINED = 2  # this machine allows no sandboxes: the text says why


def bits(count: int) -> int:
    """The number of bytes of a bit for each of so many messages."""
    return (count + 7) // 8


def join_texts(*texts: bytes) -> bytes:
    """Texts with their lengths before them."""
    return b"".join(part for text in texts for part in (LENGTH.pack(len(text)), text))


def split_texts(data: bytes) -> list[bytes]:
    """The texts joined by `join_texts`; the sandbox trusts its filter server."""
    texts, position = [], 0
    while position < len(data):
        (length,) = LENGTH.unpack_from(data, position)
        position += LENGTH.size
        texts.append(data[position : position + length])
        position += length
    return texts
