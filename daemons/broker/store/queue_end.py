"""Where the entries of a queue end in its files, which were left by whatever stopped a broker."""

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.queue_files import QueueFiles

_ENTRY_SIZE = layout.ENTRY_SIZE
_FIRST_ENTRIES = 200  # 4 kB, a page
_ZEROS = bytes(_FIRST_ENTRIES * _ENTRY_SIZE)


def find_end(files: QueueFiles) -> tuple[int, bytes]:
    """One past the index of the last entry, in the last file that begins with one, and that entry;
    0 and b"" where there is none. Files behind it are deleted.

    Most queues end among the first entries of their last file, which are read at once; the end of
    the others is found by halving. Raises OSError.
    """
    while (start := files.last) is not None:
        high = files.behind(start)
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
    """One past the last that is an entry among the first of a file, and that one."""
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
    """How long up to a page of bytes is without the zeros at its end: halved, for that takes half
    of what `rstrip` does, at each of the ten thousand queues of a start."""
    low, high = 0, len(raw)
    while low < high:
        middle = (low + high) // 2
        if raw[middle:high] == _ZEROS[: high - middle]:
            high = middle
        else:
            low = middle + 1
    return high
