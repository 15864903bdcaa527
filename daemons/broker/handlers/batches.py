"""The messages of a batch request, ready to be appended."""

import struct

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.append import BatchedMessage
from mq.daemons.broker.store.index import key_hash, raw_hash
from mq.daemons.broker.store.records import keys_of
from mq.daemons.dispatch import Refused
from mq.protocol.codes import ResponseCode
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.properties import (
    MAX_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    PropertyKey,
    decode,
    drop_brokers_own,
    encode,
)
from mq.protocol.tags import tags_code

_unpack_head = struct.Struct(">i8xii").unpack_from  # size, flag, body length: mq.protocol.batch
_unpack_length, _pack_length = layout.SHORT.unpack_from, layout.SHORT.pack
_HEAD_SIZE = 20
_SEPARATOR = PROPERTY_SEPARATOR.encode()
_UNIQUE = f"{PropertyKey.UNIQUE_KEY}{NAME_VALUE_SEPARATOR}".encode()
_ID_AT = len(_UNIQUE)

# A batch's own properties are copied into each of its messages: 0.9 MB of request could become a
# gigabyte. What 140,000 messages of 30 bytes, the most that a request of 4 MiB holds, get from
# Java's clients is a fifth of this.
MOST_COPIED = 16 * 1024 * 1024
_LARGE = 1024  # of properties that are copied; with less the limit is not reached


def messages_of(body: bytes, topic: str, common: dict[str, str]) -> list[BatchedMessage]:
    """Read a batch; `common` are the properties that each message gets besides its own.

    Raises RemoteProtocolError where the lengths do not add up, Refused for properties that are too
    long.
    """
    behind = _SEPARATOR + encode(common).encode()
    longest = MAX_LENGTH - len(behind)
    most = MOST_COPIED // len(behind)
    if len(behind) > _LARGE and _count(body) > most:  # before any work that is thrown away
        raise _too_many(most, len(behind))
    named = f"{topic}#".encode()
    found: list[BatchedMessage] = []
    position, end = 0, len(body)
    while position < end:
        try:
            size, flag, length = _unpack_head(body, position)
            start = position + _HEAD_SIZE
            stop = start + length
            if length < 0:
                raise _malformed(position)
            (text_length,) = _unpack_length(body, stop)
        except struct.error:
            raise _malformed(position) from None
        if len(found) >= most:
            raise _too_many(most, len(behind))
        following = stop + 2 + text_length
        if text_length < 0 or following > end or following - position != size:
            raise _malformed(position)
        text = body[stop + 2 : following]
        # What producers of tables give: the id, and nothing else that has to be looked at.
        if text[:_ID_AT] == _UNIQUE and _SEPARATOR not in text and text_length > _ID_AT:
            try:
                keys: tuple[int, ...] = (raw_hash(named + text[_ID_AT:]),)
            except UnicodeDecodeError:
                raise _not_unicode(position) from None
            code = 0
            if text_length > longest:
                raise _too_long(text_length + len(behind))
            field = b"".join((_pack_length(text_length + len(behind)), text, behind))
        else:
            own = decode(_unicode(text, position))
            drop_brokers_own(own)
            keys = tuple(key_hash(topic, key) for key in keys_of(own))
            code = tags_code(own.get(PropertyKey.TAGS))
            raw = encode({**own, **common}).encode()
            if len(raw) > MAX_LENGTH:
                raise _too_long(len(raw))
            field = _pack_length(len(raw)) + raw
        found.append((body[start:stop], field, flag, code, keys))
        position = following
    return found


def _count(body: bytes) -> int:
    """How many messages a batch has, from their sizes alone."""
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


def _unicode(text: bytes, position: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise _not_unicode(position) from None


def _not_unicode(position: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"batch: the properties of the message at byte {position} are not UTF-8"
    )


def _malformed(position: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"batch: no whole message at byte {position}")
