"""Read-only files of a store that no broker of this process serves."""

import errno
import os
from collections import deque
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Self

from mq.client.machine import files
from mq.daemons.broker.store.log.mapped_file import extent_end
from mq.daemons.broker.store.log.windows import MappedSource
from mq.daemons.open_files import most_open_files

_PIECE = 1 << 20  # bytes searched for zeros at once
_MOST_OPEN = 16_384
_MOST_WINDOWS = 4  # files whose last read part stays in memory


class OpenFiles:
    """The open files, limited to what a process may open, and the last read parts of a few of them.
    A context manager that closes all.

    A store may have more files than a process may open.
    """

    def __init__(self) -> None:
        most = min(most_open_files() // 2, _MOST_OPEN)
        self._open: deque[ReadOnlyFile] = deque(maxlen=max(2, most))
        self._windowed: deque[ReadOnlyFile] = deque(maxlen=_MOST_WINDOWS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, file: "ReadOnlyFile") -> None:
        """Register a file that was just opened; closes the one that was opened longest ago."""
        if len(self._open) == self._open.maxlen:
            self._open.popleft().close()
        self._open.append(file)

    def keep_window(self, file: "ReadOnlyFile") -> None:
        """Register a file that now has a part in memory, and had none."""
        if len(self._windowed) == self._windowed.maxlen:
            self._windowed.popleft().forget_window()
        self._windowed.append(file)

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


class ReadOnlyFile(MappedSource):
    """A file of a store. ``start`` is the offset in its name.

    It is opened at once, so that it can be read to its end even if a broker deletes it meanwhile,
    and again if ``opened`` had to close it. It is not mapped: if another process shortens the file,
    as a broker does on a full disk, an access to the map would end this process with SIGBUS.
    """

    def __init__(self, path: Path, start: int, opened: OpenFiles) -> None:
        """Raises OSError."""
        super().__init__()
        self.path = path
        self.start = start
        self._opened = opened
        # Positions of the blocks that `read_around` could not read.
        self.unreadable: set[int] = set()
        self._descriptor = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
        opened.keep(self)
        status = files.fstat(self._descriptor)
        self.size = status.st_size
        self._identity = status.st_dev, status.st_ino, status.st_size
        # determined now, because its name may be another file's later
        self._extent_end = extent_end(self._descriptor)

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from a position on, as the file was when it was opened.

        Raises OSError if it has fewer bytes by now, or if it had to be opened again and no longer
        exists.
        """
        if self._descriptor < 0:
            self._open_again()
        left = max(0, min(size, self.size - position))
        pieces = []
        while left:
            try:
                piece = files.pread(self._descriptor, left, position)
            except OSError as error:  # this error does not name the file
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            if not piece:
                why = "made shorter while it was read, by a broker that runs or a copy: try again"
                raise OSError(errno.ESTALE, why, str(self.path))
            pieces.append(piece)
            position += len(piece)
            left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _window_begins(self) -> None:
        self._opened.keep_window(self)

    def read_around(self, position: int, size: int) -> tuple[bytes, list[int]]:
        """Read a part, with zeros for unreadable blocks; also returns the positions of these
        blocks.

        Raises as `read` for other errors.
        """
        if self._descriptor < 0:
            self._open_again()
        size = max(0, min(size, self.size - position))
        data, unreadable = files.read_around(self._descriptor, size, position)
        self.unreadable.update(unreadable)
        return data, unreadable

    def _open_again(self) -> None:
        with suppress(FileNotFoundError):
            self._descriptor = files.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            self._opened.keep(self)
            status = files.fstat(self._descriptor)
            if (status.st_dev, status.st_ino, status.st_size) == self._identity:
                return
            self.close()  # else further reads would be of another file
        why = "removed or replaced while it was read, by a broker that runs: try again"
        raise OSError(errno.ESTALE, why, str(self.path))

    def close(self) -> None:
        """Close the file. Idempotent. The next read opens it again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            files.close(descriptor)

    @property
    def end(self) -> int:
        return self.start + self.size

    @cached_property
    def data_end(self) -> int:
        """The position after the last byte that is not zero or not readable. Raises as `read` for
        other errors.
        """
        end = self._extent_end
        while end > 0:
            start = max(0, end - _PIECE)
            data, unreadable = self.read_around(start, end - start)
            found = start + len(data.rstrip(b"\0"))
            if unreadable:
                found = max(found, min(unreadable[-1] + files.BLOCK, end))
            if found > start:
                return found
            end = start
        return 0
