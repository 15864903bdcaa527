"""Bulk pulls: large replies to pulls that ask for them: thousands of messages of a queue at once.

A job that reads a topic from end to end pays for each reply, at both ends of the connection; the
limits of the Java broker, 32 messages and 256 KiB, make that the larger part of what it pays.
docs/decisions/0025-large-pulls.md says who gets more, and why no other pull is touched by it.

Nothing here is done message by message but what the library's own loops do.
"""

import struct
from bisect import bisect_left, bisect_right
from functools import cache
from itertools import accumulate, compress, pairwise, repeat
from operator import add, ne, sub

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.residency import Residency
from mq.protocol.record import MAGIC_V1, RECORD_IDENTITY, SMALLEST_RECORD

# Java's own clients say this when they have no limit (DefaultMQPullConsumerImpl): no wish for more.
_NO_LIMIT = 0x7FFFFFFF

_AT_ONCE = 64  # entries unpacked in one go
_ENTRIES = struct.Struct(">" + _AT_ONCE * layout.ENTRY_PLACE)
_identity = RECORD_IDENTITY.unpack_from

Range = tuple[int, int]  # physical offset, size


def asked_bytes(text: str, ordinary: int, most: int) -> int:
    """How many bytes a pull with `maxMsgBytes` may get beyond the `ordinary` ones; 0 for no more.

    Raises ValueError for a text that is no number.
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
    """The records of the first of these entries: (in which ranges, how many, bytes).

    One at least, as many as fit into `most_bytes` and lie in one file of the log. None if an entry
    is not as it should be: then they have to be looked at one by one. Raises NotInMemory if
    ``present`` says that a disk would have to be waited for.
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
    """Physical offset and size of each entry, up to those that make so many bytes, or some more."""
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
    """Fewer than _AT_ONCE."""
    return struct.Struct(">" + size // layout.ENTRY_SIZE * layout.ENTRY_PLACE)


def _match_log(
    view: memoryview,
    base: int,
    queue: ConsumeQueue,
    offset: int,
    physicals: list[int],
    sizes: list[int],
) -> bool:
    """Whether the records are the very messages of these queue offsets.

    Of entries that this process has made the first and the last tell (see MessageFinder).
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
    """Records that lie side by side become one range."""
    ends = list(map(add, physicals, sizes))
    breaks = list(compress(range(1, len(ends)), map(ne, ends, physicals[1:])))
    if len(breaks) == len(ends) - 1:
        return list(zip(physicals, sizes, strict=True))
    edges = [0, *breaks, len(ends)]
    return [(physicals[a], ends[b - 1] - physicals[a]) for a, b in pairwise(edges)]
