"""Windows: reads a file from start to end with system calls, with one part of it in memory at a
time.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store.log.mapped_file import MappedFile, data_end

# Bytes that are read at once: at first, and at most when reading continues there.
_MIN_AHEAD = 4096
_MAX_AHEAD = 1 << 20

_NO_WINDOW = memoryview(b"")


class MappedSource(ABC):
    """A file of a store, of ``size`` bytes."""

    size: int

    def __init__(self) -> None:
        self._window = _NO_WINDOW, 0
        self._ahead = _MIN_AHEAD

    @abstractmethod
    def read(self, position: int, size: int) -> bytes:
        """Return the bytes from a position on, as many as exist. Raises OSError."""

    @property
    @abstractmethod
    def data_end(self) -> int:
        """The position after the last byte that is not zero. Raises OSError."""

    def window(self, position: int, size: int) -> tuple[memoryview, int]:
        """Return a part in memory and its position in the file: it has at least ``size`` bytes from
        ``position`` on, or all that exist. It is larger, up to a megabyte, while reading is
        sequential. Raises as `read`.
        """
        view, begin = self._window
        least = min(size, self.size - position)
        if begin <= position and position + least <= begin + len(view):
            return self._window
        if begin <= position <= begin + len(view):
            self._ahead = min(2 * self._ahead, _MAX_AHEAD)
        else:
            self._ahead = _MIN_AHEAD
        try:
            data = self.read(position, max(least, self._ahead))
        except OSError as error:  # perhaps in the part that is read ahead
            if error.errno not in files.UNREADABLE or least >= self._ahead:
                raise
            data = self.read(position, least)
            self._ahead = _MIN_AHEAD
        if not view:
            self._window_opened()
        self._window = memoryview(data), position
        return self._window

    def _window_opened(self) -> None:  # noqa: B027
        """Called before the file has a part in memory, if it had none."""

    def forget_window(self) -> None:
        """Drop the window. Its memory is freed when no caller uses it any more."""
        self._window = _NO_WINDOW, 0

    def find(self, part: bytes, position: int) -> int:
        """The next position of bytes that do not end in zeros, -1 if there is none.

        Skips unreadable blocks. Raises as `read` for other errors.
        """
        end = self.data_end
        while position + len(part) <= end:
            try:
                view, begin = self.window(position, len(part))
            except OSError as error:
                if error.errno not in files.UNREADABLE:
                    raise
                position += files.BLOCK - position % files.BLOCK
                continue
            content = view.obj
            assert isinstance(content, bytes)
            stop = min(len(content), end - begin)
            place = content.find(part, position - begin, stop)
            if place >= 0:
                return begin + place
            position = begin + stop - len(part) + 1
        return -1


class LogReader(MappedSource):
    """A file of an open log, for one reader. Later writes may be invisible."""

    def __init__(self, file: MappedFile) -> None:
        super().__init__()
        self._file = file
        self.start = file.start
        self.end = file.end
        self.size = file.size

    @property
    def path(self) -> Path:
        return self._file.path

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def read_part(self, position: int, size: int) -> bytes:
        return self._file.read_part(position, size)

    @cached_property
    def data_end(self) -> int:
        return data_end(self._file.descriptor)
