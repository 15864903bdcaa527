"""Which messages of a partition are next, as the index says it."""

from collections.abc import Set
from typing import Any, NamedTuple

from mq.daemons.tube.broker.store.layout import INDEX, INDEX_SIZE, MAX_RECORD
from mq.protocol.native import native


class Selection(NamedTuple):
    """What was found in a piece of the index."""

    scanned: int  # bytes of the index that are done with
    last: int  # where the data ends that was looked at; -1 if none was
    size: int  # bytes of the records found
    is_done: bool  # the limit is reached
    records: int  # how many
    runs: list[tuple[int, int]]  # offset and size in the data, of spans that they are in
    bad: int  # records of the index that are damaged


#: How far apart records may be that are read together, with what is between them, which takes as
#: long as another call of the system; and how long such a span may be.
JOINS = 4 * 1024, 128 * 1024
APART = -1, 0  # each record by itself


def select_in_python(
    piece: bytes,
    partition: int,
    codes: Set[int] | None,
    bounds: tuple[int, int],
    limit: int,
    joins: tuple[int, int] = JOINS,
) -> Selection:
    """Look at records of the index, one after the other.

    ``codes`` are those of the filter items that are wanted, None for all; ``bounds`` are where the
    data that may be read begins and ends. The message that reaches ``limit`` bytes is the last.
    What has gone is passed over, and so is what no record can be (MsgFileStore.getMessages). One
    that is said to be behind the end of the data is such, too: the index is never ahead of it. Java
    takes it for the end, where all consumers of a store would wait for ever.
    """
    least, most = bounds
    gap, longest = joins
    scanned = size = count = bad = 0
    last = -1
    runs: list[tuple[int, int]] = []
    for of, at, length, code, _ in INDEX.iter_unpack(piece[: len(piece) // 28 * 28]):
        end = at + length
        scanned += INDEX_SIZE
        if at < 0 or end > most or not 0 < length <= MAX_RECORD:
            bad += 1
            continue
        if at < least:
            continue
        last = end
        if of != partition or (codes is not None and code not in codes):
            continue
        start, held = runs[-1] if runs else (0, 0)
        if runs and 0 <= at - start - held <= gap and end - start <= longest:
            runs[-1] = start, end - start
        else:
            runs.append((at, length))
        size += length
        count += 1
        if size >= limit:
            return Selection(scanned, last, size, True, count, runs, bad)
    return Selection(scanned, last, size, False, count, runs, bad)


def select_natively(
    piece: bytes,
    partition: int,
    codes: Set[int] | None,
    bounds: tuple[int, int],
    limit: int,
    joins: tuple[int, int] = JOINS,
) -> Selection:
    """The same by the native library."""
    found: Any = native.tube_select(piece, partition, codes, bounds, limit, joins)
    return Selection(*found)


select = select_in_python if native is None else select_natively
