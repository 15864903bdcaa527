"""Reading the next messages of a partition."""

from collections.abc import Set
from typing import NamedTuple

from mq.daemons.tube.broker.store.layout import INDEX_SIZE
from mq.daemons.tube.broker.store.segments import Segments
from mq.daemons.tube.broker.store.selection import APART, JOINS, select
from mq.daemons.tube.broker.store.topic_store import TopicStore

# Bytes of the index that are read at once: enough for most gets.
_PIECE = 1024 * INDEX_SIZE
_MOST = 4 * 1024 * 1024  # of a span


class ReadRequest(NamedTuple):
    """A request: index offset, filter codes (None: all), bytes, bytes of index to scan."""

    partition: int
    offset: int
    codes: Set[int] | None
    limit: int
    scan: int
    joined: bool = True  # read records together, with the bytes between them


class ReadResult(NamedTuple):
    """The data of a read. ``pieces`` are records as in the files, with others in between."""

    pieces: list[bytes]
    size: int  # of the records, heads included
    scanned: int  # bytes of the index that were scanned
    last: int  # the end of the scanned data; -1 without any
    records: int  # number of wanted ones
    bad: int  # damaged records of the index, which are skipped


def read(store: TopicStore, wish: ReadRequest, *, wait: bool = False) -> ReadResult:
    """Read on the event loop. Raises OSError, BlockingIOError if the data is not in memory."""
    bounds = store.min_data, store.max_data
    return _read(store.data, store.index, bounds, store.max_index, wish, wait)


class ThreadRead:
    """The same for a thread, on the present files, which exist until `end`."""

    def __init__(self, store: TopicStore, wish: ReadRequest) -> None:
        self._data = store.data.snapshot()
        self._index = store.index.snapshot()
        self._bounds = store.min_data, store.max_data
        self._most = store.max_index
        self._wish = wish
        for segment in (*self._data.segments, *self._index.segments):
            segment.readers += 1

    def run(self) -> ReadResult:
        """Raises OSError."""
        return _read(self._data, self._index, self._bounds, self._most, self._wish, True)

    def end(self) -> None:
        """Release the files. Called on the loop, once."""
        for segment in (*self._data.segments, *self._index.segments):
            segment.readers -= 1


def _read(
    data: Segments,
    index: Segments,
    bounds: tuple[int, int],
    most: int,
    wish: ReadRequest,
    wait: bool,
) -> ReadResult:
    offset, end = wish.offset, min(wish.offset + wish.scan, most)
    runs: list[tuple[int, int]] = []
    size, last, count, bad = 0, -1, 0, 0
    joins = JOINS if wish.joined else APART
    segment = index.at(offset)
    if segment is not None:  # one file at a time, as in Java: the rest is for the next get
        end = min(end, segment.end)
    while offset < end:
        piece = bytes(_part(index, offset, min(_PIECE, end - offset), wait))
        left = wish.limit - size
        found = select(piece, wish.partition, wish.codes, bounds, left, joins)
        offset += found.scanned
        size += found.size
        count += found.records
        bad += found.bad
        last = max(last, found.last)
        runs += found.runs
        if found.is_done or not found.scanned:
            break
    pieces = [_span(data, at, at + length, wait) for at, length in runs]
    return ReadResult(pieces, size, offset - wish.offset, last, count, bad)


def _span(data: Segments, start: int, end: int, wait: bool) -> bytes:
    part = bytes(_part(data, start, end - start, wait))
    return part if len(part) == end - start else _on(data, start, end, part, wait)


def _on(data: Segments, start: int, end: int, read: bytes, wait: bool) -> bytes:
    """Return the rest of a span that continues in the next file."""
    pieces = [read]
    start += len(read)
    while start < end:
        piece = bytes(_part(data, start, end - start, wait))
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


# Buffer for reads on the event loop: its memory is allocated once.
_buffer = memoryview(bytearray(_MOST))


def _part(segments: Segments, offset: int, size: int, wait: bool) -> memoryview:
    """Return bytes of a file; without ``wait``, on the event loop, they are valid until the next
    call.
    """
    if wait:
        return memoryview(segments.read(offset, size))
    buffer = _buffer[:size] if size <= _MOST else memoryview(bytearray(size))
    return buffer[: segments.read_at_once(offset, buffer)]
