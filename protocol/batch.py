"""Batches: several messages of one topic in the body of one SEND_BATCH_MESSAGE request.

One element per message, all big-endian (MessageDecoder.encodeMessage):

    size i32 | magic i32 (0) | body CRC i32 (0) | flag i32 | body length i32, body
    | properties length i16, properties
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import Buffer, Message
from mq.protocol.names import RETRY_PREFIX

#: The fields before the body of an element: names, and letters of `struct`.
HEAD_FIELDS = (
    ("size", "i"),  # of the element
    ("magic", "i"),  # not used
    ("body_crc", "i"),  # not used: the broker computes it
    ("flag", "i"),
    ("body_length", "i"),
)
HEAD = struct.Struct(">" + "".join(letter for _, letter in HEAD_FIELDS))
_SHORT = struct.Struct(">h")


class BatchElement(NamedTuple):
    """One message of a batch, as views into the received buffer."""

    flag: int
    body: memoryview
    properties: memoryview  # UTF-8; properties.decode parses the text


def encode_batch(messages: Sequence[Message]) -> bytes:
    """Return the body of a batch request. Bodies are not compressed in batches.

    Raises:
        ValueError: no message, or messages that cannot form a batch
            (MessageBatch.generateFromList).
    """
    check_batch(messages)
    pieces: list[bytes | memoryview] = []
    for message in messages:
        properties = message.encode_properties().encode()
        body = message.body
        size = HEAD.size + len(body) + 2 + len(properties)
        pieces += (
            HEAD.pack(size, 0, 0, message.flag, len(body)),
            body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(pieces)


def check_batch(messages: Sequence[Message]) -> None:
    """Check that messages can form one batch.

    Raises:
        ValueError: they cannot; the text has the reason.
    """
    if not messages:
        raise ValueError("a batch needs at least one message")
    first = messages[0]
    for message in messages:
        if message.delay_level or message.deliver_at is not None:
            raise ValueError("a batch cannot have delayed messages: send them one by one")
        if message.topic.startswith(RETRY_PREFIX):
            raise ValueError("a batch cannot go to a retry topic")
        if message.topic != first.topic:
            raise ValueError(f"a batch has one topic, not {first.topic!r} and {message.topic!r}")
        if message.wait_store_ok != first.wait_store_ok:
            raise ValueError("all messages of a batch have the same wait_store_ok")


def decode_batch(buffer: Buffer) -> Iterator[BatchElement]:
    """Read the elements of a batch one by one.

    Raises:
        RemoteProtocolError: the lengths do not add up; it has the position. Elements before the
            damage have been yielded by then.
    """
    view = memoryview(buffer)
    end = len(view)
    position = 0
    while position < end:
        try:
            size, _, _, flag, body_length = HEAD.unpack_from(view, position)
            body_start = position + HEAD.size
            body_end = body_start + body_length
            if body_length < 0 or body_end > end:
                raise _malformed(position)
            properties_length = _SHORT.unpack_from(view, body_end)[0]
        except struct.error:
            raise _malformed(position) from None
        stop = body_end + 2 + properties_length
        if properties_length < 0 or stop > end or stop - position != size:
            raise _malformed(position)
        yield BatchElement(flag, view[body_start:body_end], view[body_end + 2 : stop])
        position = stop


def _malformed(position: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"batch: no whole message at byte {position}")
