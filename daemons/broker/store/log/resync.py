"""Resync: finds the record at which reading a file of the log continues after damage."""

from typing import Protocol

from mq.daemons.broker.store.log.records import BadRecord, EndOfLog, LogFile, read_file, window
from mq.protocol.record import AT, MAGICS, SMALLEST_RECORD, struct_of

_MAGIC_AT = AT["magic"]
_PHYSICAL = struct_of("physical_offset")


class SearchedFile(LogFile, Protocol):
    """A file of the log that can be searched."""

    def find(self, part: bytes, position: int) -> int:
        """The next position of bytes that do not end in zeros, -1 if there is none. Raises
        OSError."""
        ...


class RecordSearch:
    """Finds possible starts of records in a file by their magics, from the file's start to its end.

    Each byte is searched once for each magic, however many places there are: a body may consist of
    nothing but one magic, while the other one is nowhere.
    """

    def __init__(self, file: SearchedFile) -> None:
        self._file = file
        # by magic: a place that was found, or the end of the file
        self._next = dict.fromkeys(MAGICS, -1)

    def _next_magic(self, position: int) -> int | None:
        """The first place of a magic from a position on, which must not decrease between calls."""
        for magic, place in self._next.items():
            if place < position:
                found = self._file.find(magic, position)
                self._next[magic] = found if found >= 0 else self._file.size
        place = min(self._next.values())
        return place if place < self._file.size else None

    def next_record(self, position: int) -> int | None:
        """The start of the first whole record from a position on, which must not decrease between
        calls: its magic and its physical offset are right. None if there is none. Raises
        OSError.
        """
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
