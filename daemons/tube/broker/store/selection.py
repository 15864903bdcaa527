"""The selection of a partition's next messages from the index."""

from collections.abc import Set
from typing import Any, NamedTuple

from mq.daemons.tube.broker.store.layout import INDEX, INDEX_SIZE, MAX_RECORD
from mq.protocol.native import native


class Selection(NamedTuple):
    """The result for a piece of the index."""

    scanned: int  # processed bytes of the index
    last: int  # the end of the scanned data; -1 without any
    size: int  # bytes of the found records
    is_done: bool  # the limit is reached
    records: int  # number of records
    runs: list[tuple[int, int]]  # offset and size in the data, of spans that contain them
    bad: int  # damaged records of the index


#: Maximum distance of records that are read together, including the bytes between them, which takes
#: as long as another system call; and the maximum length of such a span.
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
    """Scan records of the index.

    ``codes`` are those of the wanted filter items, None for all; ``bounds`` are the start and end
    of the readable data. The message that reaches ``limit`` bytes is the last. Deleted and invalid
    records are skipped (MsgFileStore.getMessages), also those beyond the end of the data: the index
    is never ahead of it. Java takes such a record for the end, where all consumers of a store would
    wait for ever.
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
    """Do the same with the native library."""
    found: Any = native.tube_select(piece, partition, codes, bounds, limit, joins)
    return Selection(*found)


select = select_in_python if native is None else select_natively
