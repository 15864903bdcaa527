"""Where reading a file of the log goes on behind what is no record."""

from typing import Protocol

from mq.daemons.broker.store.records import BadRecord, EndOfLog, LogFile, read_file, window
from mq.protocol.record import AT, MAGICS, SMALLEST_RECORD, struct_of

_MAGIC_AT = AT["magic"]
_PHYSICAL = struct_of("physical_offset")


class SearchedFile(LogFile, Protocol):
    """A file of the log that can be searched."""

    def find(self, part: bytes, position: int) -> int:
        """Where bytes that do not end in zeros are next, -1 if nowhere. Raises OSError."""
        ...


class RecordSearch:
    """Where records may begin in a file: their magics, asked for from its beginning to its end.

    Each byte is looked at once for each magic, however many places there are: a body may be made
    of nothing but one magic, and the other one be nowhere.
    """

    def __init__(self, file: SearchedFile) -> None:
        self._file = file
        self._next = dict.fromkeys(MAGICS, -1)  # a place that was found, or the end of the file

    def _next_magic(self, position: int) -> int | None:
        """The first place from a position on, which never goes back."""
        for magic, place in self._next.items():
            if place < position:
                found = self._file.find(magic, position)
                self._next[magic] = found if found >= 0 else self._file.size
        place = min(self._next.values())
        return place if place < self._file.size else None

    def next_record(self, position: int) -> int | None:
        """Where the first whole record from a position on, which never goes back, begins: its magic
        and its own offset say so. None if there is none. Raises OSError."""
        file = self._file
        at = position + _MAGIC_AT
        while (place := self._next_magic(at)) is not None:
            start = place - _MAGIC_AT
            at = place + 1
            if start + SMALLEST_RECORD > file.size:
                return None
            try:
                view, begin = window(file, start, SMALLEST_RECORD)
                (physical,) = _PHYSICAL.unpack_from(view, start - begin)
                if physical != file.start + start:
                    continue
                if next(read_file(file, start), None) is not None:
                    return start
            except (BadRecord, EndOfLog):
                continue
        return None
