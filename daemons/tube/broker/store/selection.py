"""Which messages of a partition are next, as the index says it."""

from collections.abc import Set
from functools import partial
from typing import Any, NamedTuple

from mq.daemons.tube.broker.store.layout import INDEX, INDEX_SIZE, MAX_RECORD
from mq.protocol.native import native


class Selection(NamedTuple):
    """What was found in a piece of the index."""

    scanned: int  # bytes of the index that are done with
    last: int  # where the data ends that was looked at; -1 if none was
    size: int  # bytes of the records found
    is_done: bool  # the limit is reached, or the end of what may be read
    runs: list[tuple[int, int]]  # offset and size in the data, of records in a row


def select_in_python(
    piece: bytes,
    partition: int,
    codes: Set[int] | None,
    bounds: tuple[int, int],
    limit: int,
    joined: bool = True,
) -> Selection:
    """Look at records of the index, one after the other.

    ``codes`` are those of the filter items that are wanted, None for all; ``bounds`` are where the
    data that may be read begins and ends. The message that reaches ``limit`` bytes is the last.
    What has gone, and what no record can be, is passed over (MsgFileStore.getMessages). Not
    ``joined``, each record is a run of its own.
    """
    least, most = bounds
    scanned = size = 0
    last = -1
    runs: list[tuple[int, int]] = []
    run_start = run_end = -1
    for of, at, length, code, _ in INDEX.iter_unpack(piece[: len(piece) // 28 * 28]):
        end = at + length
        if at < least or not 0 < length <= MAX_RECORD:
            scanned += INDEX_SIZE
            continue
        if end > most:
            if run_end > run_start:
                runs.append((run_start, run_end - run_start))
            return Selection(scanned, at, size, True, runs)
        scanned += INDEX_SIZE
        last = end
        if of != partition or (codes is not None and code not in codes):
            continue
        if at != run_end or not joined:
            if run_end > run_start:
                runs.append((run_start, run_end - run_start))
            run_start = at
        run_end = end
        size += length
        if size >= limit:
            runs.append((run_start, run_end - run_start))
            return Selection(scanned, last, size, True, runs)
    if run_end > run_start:
        runs.append((run_start, run_end - run_start))
    return Selection(scanned, last, size, False, runs)


def select_natively(
    piece: bytes,
    partition: int,
    codes: Set[int] | None,
    bounds: tuple[int, int],
    limit: int,
) -> Selection:
    """The same by the native library."""
    found: Any = native.tube_select(piece, partition, codes, bounds, limit)
    return Selection(*found)


select = select_in_python if native is None else select_natively
select_singly = partial(select_in_python, joined=False)
