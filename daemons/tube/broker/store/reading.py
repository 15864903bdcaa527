"""Reading the next messages of a partition."""

from collections.abc import Set
from typing import NamedTuple

from mq.daemons.tube.broker.store.layout import INDEX_SIZE
from mq.daemons.tube.broker.store.segments import Segments
from mq.daemons.tube.broker.store.selection import select, select_singly
from mq.daemons.tube.broker.store.topic_store import TopicStore

# Bytes of the index that are read at once: most gets need no more.
_PIECE = 1024 * INDEX_SIZE


class Wish(NamedTuple):
    """What is asked for: index offset, filter codes (None: all), bytes, bytes of index to scan."""

    partition: int
    offset: int
    codes: Set[int] | None
    limit: int
    scan: int
    joined: bool = True  # records in a row are one piece


class Found(NamedTuple):
    """What was read. ``pieces`` are records in a row, as they are in the files."""

    pieces: list[bytes]
    size: int  # of the records, heads included
    scanned: int  # bytes of the index that were passed
    last: int  # where the data ends that was looked at; -1 if none was


def read(store: TopicStore, wish: Wish, *, wait: bool = False) -> Found:
    """Read on the event loop. Raises OSError, BlockingIOError where a disk is to be waited for."""
    bounds = store.min_data, store.max_data
    return _read(store.data, store.index, bounds, store.max_index, wish, wait)


class ThreadRead:
    """The same for a thread: of the files as they are now, which stay until `end`."""

    def __init__(self, store: TopicStore, wish: Wish) -> None:
        self._data = store.data.snapshot()
        self._index = store.index.snapshot()
        self._bounds = store.min_data, store.max_data
        self._most = store.max_index
        self._wish = wish
        for segment in (*self._data.segments, *self._index.segments):
            segment.readers += 1

    def run(self) -> Found:
        """Raises OSError."""
        return _read(self._data, self._index, self._bounds, self._most, self._wish, True)

    def end(self) -> None:
        """To be called on the loop, once."""
        for segment in (*self._data.segments, *self._index.segments):
            segment.readers -= 1


def _read(
    data: Segments, index: Segments, bounds: tuple[int, int], most: int, wish: Wish, wait: bool
) -> Found:
    offset, end = wish.offset, min(wish.offset + wish.scan, most)
    runs: list[tuple[int, int]] = []
    size, last = 0, -1
    segment = index.at(offset)
    if segment is not None:  # one file at a time, as Java reads: what is next is for the next get
        end = min(end, segment.end)
    while offset < end:
        piece = index.read(offset, min(_PIECE, end - offset), wait=wait)
        chosen = select if wish.joined else select_singly
        found = chosen(piece, wish.partition, wish.codes, bounds, wish.limit - size)
        offset += found.scanned
        size += found.size
        last = max(last, found.last)
        runs += found.runs
        if found.is_done or not found.scanned:
            break
    return Found([_run(data, *run, wait) for run in runs], size, offset - wish.offset, last)


def _run(data: Segments, offset: int, size: int, wait: bool) -> bytes:
    """Records in a row, which may go on in the next file."""
    piece = data.read(offset, size, wait=wait)
    if len(piece) == size:
        return piece
    pieces = [piece]
    missing = size - len(piece)
    while missing and piece:
        offset += len(piece)
        piece = data.read(offset, missing, wait=wait)
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)
