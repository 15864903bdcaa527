"""Prepared messages of tasks, and the form in which they are stored.

A prepared message (half message) is identified by its position at the broker. A task of a million
rows has a million of them, so they stay packed, 32 bytes each.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

import orjson

from mq.pipeline.encoding import Outgoing
from mq.pipeline.errors import CommitFailed
from mq.protocol.bodies import MessageQueue
from mq.protocol.message_id import decode_offset_id

_ID_SIZE = 16  # bytes of a unique id
_HALF = struct.Struct(
    ">q"  # position in the commit log
    "q"  # offset in the queue of half messages
    "16s"  # the unique id of the message
)
_PLACE = struct.Struct("16s16x")  # the first two of these
_ID_AT = _HALF.size - _ID_SIZE
_LENGTH = struct.Struct(">I")
_PART_BYTES = 2 * 1024 * 1024  # of a part before it is compressed: half of the largest message
_HEAD_BYTES = 1024  # at least enough for a topic and a broker
_HALVES_PER_PIECE = (_PART_BYTES - _HEAD_BYTES) // _HALF.size
# Limit of a part that is read, to bound memory. Earlier releases limited only its half messages to
# 2 MB, and not the names of their topics and brokers.
_MOST_BYTES = 32 * 1024 * 1024

NO_QUEUE = -1  # the message may overtake others


class Half(NamedTuple):
    """One prepared message."""

    topic: str
    broker_name: str
    queue_id: int  # the queue in which its order counts, or NO_QUEUE
    physical: int
    queue_offset: int  # in the queue of half messages
    unique_id: str


class Prepared(NamedTuple):
    """Messages for one queue, or for any queue of a broker, in order."""

    topic: str
    broker_name: str
    queue_id: int
    packed: bytes

    def __len__(self) -> int:
        return len(self.packed) // _HALF.size

    def halves(self) -> Iterator[Half]:
        for physical, queue_offset, unique in _HALF.iter_unpack(self.packed):
            yield Half(
                self.topic,
                self.broker_name,
                self.queue_id,
                physical,
                queue_offset,
                unique.hex().upper(),
            )

    def part(self, start: int, stop: int | None = None) -> "Prepared":
        """Return the messages from one index to another, or to the last."""
        end = len(self.packed) if stop is None else stop * _HALF.size
        return self._with(self.packed[start * _HALF.size : end])

    def without(self, unique_ids: Set[str]) -> "Prepared":
        """Return the messages whose unique ids are not in the set."""
        pieces = (
            self.packed[at : at + _HALF.size] for at in range(0, len(self.packed), _HALF.size)
        )
        left = [one for one in pieces if one[_ID_AT:].hex().upper() not in unique_ids]
        return self._with(b"".join(left))

    def places(self) -> bytes:
        """Return their positions, packed as by `mq.protocol.headers.transaction.pack_halves`."""
        return b"".join([place for (place,) in _PLACE.iter_unpack(self.packed)])

    def _with(self, packed: bytes) -> "Prepared":
        # Not _replace, which checks the length of the tuple against the number of its fields.
        return Prepared(self.topic, self.broker_name, self.queue_id, packed)


class Halves:
    """Collects the prepared messages of a task."""

    def __init__(self) -> None:
        self._by_queue: dict[MessageQueue, bytearray] = {}

    def add(self, outgoing: Outgoing, queue: MessageQueue, fields: dict[str, object]) -> None:
        """Record messages that were stored, by the fields of the reply. Raises CommitFailed."""
        ids = outgoing.packed_ids
        count = len(ids) // _ID_SIZE
        try:
            text, first = str(fields["msgId"]), int(str(fields["queueOffset"]))
            places = _physical_offsets(text)
            if len(places) != count:
                raise ValueError(f"{len(places)} ids for {count} messages")
            offsets = range(first, first + count)
            unique_ids = [ids[at : at + _ID_SIZE] for at in range(0, len(ids), _ID_SIZE)]
            packed = b"".join(map(_HALF.pack, places, offsets, unique_ids))
        except (KeyError, ValueError, struct.error) as error:
            raise CommitFailed(
                f"{queue}: the broker's reply lacks the position of a message: {error}"
            ) from None
        self._by_queue.setdefault(queue, bytearray()).extend(packed)

    def prepared(self, *, ordered: bool) -> list[Prepared]:
        """Return all of them. With `ordered` those of a queue keep their order."""
        return [
            Prepared(q.topic, q.broker_name, q.queue_id if ordered else NO_QUEUE, bytes(packed))
            for q, packed in self._by_queue.items()
        ]


def _physical_offsets(ids: str) -> list[int]:
    """Decode the offset ids of one broker, separated by commas. Raises ValueError."""
    first = ids.partition(",")[0]
    decode_offset_id(first)  # the others have the same host, and differ only in the offset
    count, digits = ids.count(",") + 1, len(first)
    if len(ids) != count * (digits + 1) - 1 or any(
        ids[at : at + 1] != "," for at in range(digits, len(ids), digits + 1)
    ):
        raise ValueError(f"{ids[:200]!r} are not offset ids of one length")
    packed = bytes.fromhex(ids.replace(",", ""))
    return [at for (at,) in struct.iter_unpack(f">{digits // 2 - 8}xq", packed)]


def are_same(these: Iterable[Prepared], those: Iterable[Prepared]) -> bool:
    """Whether both contain the same messages, however they are split."""
    return _by_queue(these) == _by_queue(those)


def _by_queue(prepared: Iterable[Prepared]) -> dict[tuple[str, str, int], bytes]:
    found: dict[tuple[str, str, int], bytearray] = {}
    for topic, broker_name, queue_id, packed in prepared:
        found.setdefault((topic, broker_name, queue_id), bytearray()).extend(packed)
    return {key: bytes(packed) for key, packed in found.items()}


def to_parts(prepared: Iterable[Prepared]) -> Iterator[bytes]:
    """Encode prepared messages as bodies of messages."""
    heads: list[bytes] = []
    data = bytearray()
    left = _PART_BYTES
    for each in prepared:
        for start in range(0, len(each.packed), _HALVES_PER_PIECE * _HALF.size):
            piece = each.packed[start : start + _HALVES_PER_PIECE * _HALF.size]
            head = orjson.dumps((each.topic, each.broker_name, each.queue_id, len(piece)))
            need = len(head) + 1 + len(piece)
            if heads and need + _LENGTH.size + 2 > left:
                yield _part(heads, data)
                heads, data, left = [], bytearray(), _PART_BYTES
            heads.append(head)
            data += piece
            left -= need
    if heads:
        yield _part(heads, data)


def _part(heads: list[bytes], data: bytearray) -> bytes:
    head = b"[" + b",".join(heads) + b"]"
    return zlib.compress(_LENGTH.pack(len(head)) + head + data, 1)


def from_part(body: bytes) -> list[Prepared]:
    """Parse what `to_parts` returned. Raises ValueError for anything else."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(body, _MOST_BYTES)
        if not unpacker.eof:
            raise ValueError(f"it is cut off, or has more than {_MOST_BYTES} bytes")
        (length,) = _LENGTH.unpack_from(data)
        heads = orjson.loads(data[_LENGTH.size : _LENGTH.size + length])
        found = []
        at = _LENGTH.size + length
        for topic, broker_name, queue_id, size in heads:
            packed = data[at : at + size]
            if len(packed) != size or size % _HALF.size or type(queue_id) is not int:
                raise ValueError("its lengths do not add up")
            found.append(Prepared(str(topic), str(broker_name), queue_id, packed))
            at += size
    except (zlib.error, struct.error, TypeError) as error:
        raise ValueError(str(error)) from None
    return found
