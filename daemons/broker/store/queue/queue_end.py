"""Finds the end of the entries in the files of a queue, in whatever state a broker left them."""

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.queue.queue_files import QueueFiles

_ENTRY_SIZE = layout.ENTRY_SIZE
_FIRST_ENTRIES = 200  # 4 kB, a page
_ZEROS = bytes(_FIRST_ENTRIES * _ENTRY_SIZE)


def find_end(files: QueueFiles) -> tuple[int, bytes]:
    """Return one past the index of the last entry, in the last file that starts with an entry, and
    that entry; 0 and b"" without entries. Later files are deleted.

    Most queues end among the first entries of their last file, which are read at once; for the
    others, the end is found by bisection. Raises OSError.
    """
    while (start := files.last) is not None:
        high = files.file_end(start)
        low, last = _last_of_first(files, start)
        if low == start + _FIRST_ENTRIES:
            while low < high:
                middle = (low + high) // 2
                raw = files.read(middle, 1)
                if _is_entry(raw):
                    low, last = middle + 1, raw
                else:
                    high = middle
        if low > start:
            return low, last
        files.remove_from(start)
    return 0, b""


def _last_of_first(files: QueueFiles, start: int) -> tuple[int, bytes]:
    """One past the last valid entry among the first of a file, and that entry."""
    raw = files.read(start, _FIRST_ENTRIES)
    for number in range(-(-_end_of_data(raw) // _ENTRY_SIZE), 0, -1):
        entry = raw[(number - 1) * _ENTRY_SIZE : number * _ENTRY_SIZE]
        if _is_entry(entry):
            return start + number, entry
    return start, b""


def _is_entry(raw: bytes) -> bool:
    if len(raw) < _ENTRY_SIZE:
        return False
    physical, size, _ = layout.ENTRY.unpack(raw)
    return bool(physical >= 0 and size > 0)


def _end_of_data(raw: bytes) -> int:
    """The length of up to a page of bytes without the zeros at its end. Bisection takes half the
    time of `rstrip`, for each of the ten thousand queues of a start.
    """
    low, high = 0, len(raw)
    while low < high:
        middle = (low + high) // 2
        if raw[middle:high] == _ZEROS[: high - middle]:
            high = middle
        else:
            low = middle + 1
    return high
