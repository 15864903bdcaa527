"""Bulk pulls: replies with thousands of messages of a queue, for pulls that request them.

A job that reads a topic from end to end pays a cost for each reply, at both ends of the connection;
with the limits of the Java broker, 32 messages and 256 KiB, that is most of its cost.
docs/decisions/0025-large-pulls.md says which pulls get more, and why other pulls are not affected.

All per-message work is done by loops of the standard library.
"""

import struct
from bisect import bisect_left, bisect_right
from functools import cache
from itertools import accumulate, compress, pairwise, repeat
from operator import add, ne, sub

from mq.daemons.broker.store import CommitLog, ConsumeQueue, Residency, layout
from mq.protocol.record import MAGIC_V1, RECORD_IDENTITY, SMALLEST_RECORD

# Java's clients send this value when they have no limit (DefaultMQPullConsumerImpl); it does not
# request a bulk reply.
_NO_LIMIT = 0x7FFFFFFF

_AT_ONCE = 64  # entries per unpack call
_ENTRIES = struct.Struct(">" + _AT_ONCE * layout.ENTRY_PLACE)
_identity = RECORD_IDENTITY.unpack_from

Range = tuple[int, int]  # physical offset, size


def asked_bytes(text: str, ordinary: int, most: int) -> int:
    """The size limit of a pull with `maxMsgBytes`, if above the `ordinary` limit; else 0.

    Raises ValueError if the text is not a number.
    """
    asked = int(text)
    return 0 if asked <= ordinary or asked == _NO_LIMIT else min(asked, most)


def take(
    log: CommitLog,
    queue: ConsumeQueue,
    entries: bytes,
    offset: int,
    most_bytes: int,
    present: Residency,
) -> tuple[list[Range], int, int] | None:
    """The records of the first of these entries: (ranges, number of messages, bytes).

    At least one record, and as many as fit into `most_bytes` and are in one file of the log. None
    if an entry is not as expected: then the caller must check each entry. Raises NotInMemory if
    ``present`` says that records must be read from a disk.
    """
    physicals, sizes = _columns(entries, most_bytes)
    start = physicals[0]
    file = log.file_at(start)
    if file is None:
        return None
    totals = list(accumulate(sizes))
    limit = min(file.end, log.written)
    count = max(1, min(bisect_right(totals, most_bytes), bisect_left(physicals, limit)))
    del physicals[count:], sizes[count:]
    if (
        min(sizes) < SMALLEST_RECORD
        or physicals != sorted(physicals)
        or physicals[-1] + sizes[-1] > limit
    ):
        return None
    kept = present.require(entries[: count * layout.ENTRY_SIZE], most_bytes)
    count = len(kept) // layout.ENTRY_SIZE
    del physicals[count:], sizes[count:]
    if not _match_log(file.view, file.start, queue, offset, physicals, sizes):
        return None
    return _joined(physicals, sizes), count, totals[count - 1]


def _columns(entries: bytes, most_bytes: int) -> tuple[list[int], list[int]]:
    """Physical offset and size of each entry, until the sizes exceed `most_bytes`; possibly some
    more.
    """
    physicals: list[int] = []
    sizes: list[int] = []
    total = 0
    for at in range(0, len(entries), _ENTRIES.size):
        some = entries[at : at + _ENTRIES.size]
        unpack = _ENTRIES if len(some) == _ENTRIES.size else _some_entries(len(some))
        numbers = unpack.unpack(some)
        physicals += numbers[::2]
        sizes += numbers[1::2]
        total += sum(numbers[1::2])
        if total > most_bytes:
            break
    return physicals, sizes


@cache
def _some_entries(size: int) -> struct.Struct:
    """The unpacker of fewer than _AT_ONCE entries."""
    return struct.Struct(">" + size // layout.ENTRY_SIZE * layout.ENTRY_PLACE)


def _match_log(
    view: memoryview,
    base: int,
    queue: ConsumeQueue,
    offset: int,
    physicals: list[int],
    sizes: list[int],
) -> bool:
    """Whether the records are the messages of these queue offsets.

    For entries that this process has made, the first and the last record are checked (see
    MessageFinder).
    """
    if offset >= queue.trusted and len(physicals) > 2:
        step = len(physicals) - 1
        physicals, sizes = physicals[::step], sizes[::step]
    else:
        step = 1
    count = len(physicals)
    wanted = zip(
        sizes,
        repeat(MAGIC_V1),
        repeat(queue.queue_id),
        range(offset, offset + count * step, step),
        strict=False,
    )
    places = map(sub, physicals, repeat(base))
    return list(map(_identity, repeat(view, count), places)) == list(wanted)


def _joined(physicals: list[int], sizes: list[int]) -> list[Range]:
    """Join adjacent records into ranges."""
    ends = list(map(add, physicals, sizes))
    breaks = list(compress(range(1, len(ends)), map(ne, ends, physicals[1:])))
    if len(breaks) == len(ends) - 1:
        return list(zip(physicals, sizes, strict=True))
    edges = [0, *breaks, len(ends)]
    return [(physicals[a], ends[b - 1] - physicals[a]) for a, b in pairwise(edges)]
