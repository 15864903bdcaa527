"""The messages of a batch request, ready to be appended."""

import struct

from mq.daemons.broker.delivery.timer_request import check_in_batch
from mq.daemons.broker.store import BatchedMessage, key_hash, keys_of, layout
from mq.daemons.broker.usual_properties import UsualProperties, names_timer
from mq.daemons.dispatch import Refused
from mq.protocol.batch import HEAD
from mq.protocol.codes import ResponseCode
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.properties import (
    MAX_LENGTH,
    PROPERTY_SEPARATOR,
    PropertyKey,
    decode,
    drop_brokers_own,
    encode,
)
from mq.protocol.tags import tags_code

_unpack_head = HEAD.unpack_from
_unpack_length, _pack_length = layout.SHORT.unpack_from, layout.SHORT.pack
_HEAD_SIZE = HEAD.size
_SEPARATOR = PROPERTY_SEPARATOR.encode()

# Limit in bytes of the copied properties: a batch's own properties are copied into each of its
# messages, so that 0.9 MB of request could become a gigabyte. With Java's clients, 140,000 messages
# of 30 bytes, the most that a request of 4 MiB holds, get a fifth of this.
MOST_COPIED = 16 * 1024 * 1024
_LARGE = 1024  # bytes of copied properties; with less the limit cannot be reached


def messages_of(
    body: bytes, topic: str, common: dict[str, str], usual: UsualProperties
) -> list[BatchedMessage]:
    """Read a batch. `common` are the properties that each message gets in addition to its own,
    which `usual` parses.

    Raises RemoteProtocolError if the lengths do not add up, and Refused for properties that are too
    long.
    """
    _check_timer(common, common)
    after = _SEPARATOR + encode(common).encode()
    most = MOST_COPIED // len(after)
    if len(after) > _LARGE and _count(body) > most:  # before any wasted work
        raise _too_many(most, len(after))
    found: list[BatchedMessage] = []
    position, end = 0, len(body)
    while position < end:
        try:
            size, _, _, flag, length = _unpack_head(body, position)
            start = position + _HEAD_SIZE
            stop = start + length
            if length < 0:
                raise _malformed(position)
            (text_length,) = _unpack_length(body, stop)
        except struct.error:
            raise _malformed(position) from None
        if len(found) >= most:
            raise _too_many(most, len(after))
        following = stop + 2 + text_length
        if text_length < 0 or following > end or following - position != size:
            raise _malformed(position)
        text = body[stop + 2 : following]
        try:
            read = usual.read_in_batch(text, topic, common.keys(), after)
        except UnicodeDecodeError:
            raise _not_unicode(position) from None
        field, code, keys = read or _read_with_care(text.decode(), topic, common)
        found.append((body[start:stop], field, flag, code, keys))
        position = following
    return found


def _read_with_care(text: str, topic: str, common: dict[str, str]) -> tuple[bytes, int, list[int]]:
    own = decode(text)
    drop_brokers_own(own)
    keys = [key_hash(topic, key) for key in keys_of(own)]
    code = tags_code(own.get(PropertyKey.TAGS))
    together = {**own, **common}
    _check_timer(together, common)
    raw = encode(together).encode()
    if len(raw) > MAX_LENGTH:
        raise _too_long(len(raw))
    return _pack_length(len(raw)) + raw, code, keys


def _check_timer(properties: dict[str, str], common: dict[str, str]) -> None:
    """Raises Refused if a batch would ignore the delivery time of a message.

    Half messages keep theirs: each goes to the timer when its transaction is committed.
    """
    if names_timer(properties) and PropertyKey.TRANSACTION_PREPARED not in common:
        check_in_batch(properties)


def _count(body: bytes) -> int:
    """Count the messages of a batch, from their sizes alone."""
    count = position = 0
    end = len(body) - _HEAD_SIZE
    while position <= end:
        size = _unpack_head(body, position)[0]
        if size <= 0:
            break
        position += size
        count += 1
    return count


def _too_many(most: int, size: int) -> Refused:
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"a batch of more than {most} messages, each of which would get {size} bytes of properties "
        f"of the batch: {MOST_COPIED} bytes in all are the limit; send smaller batches",
    )


def _too_long(length: int) -> Refused:
    return Refused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"properties of {length} bytes are over the limit of {MAX_LENGTH}",
    )


def _not_unicode(position: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"batch: the properties of the message at byte {position} are not UTF-8"
    )


def _malformed(position: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"batch: no whole message at byte {position}")
