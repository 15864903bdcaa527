"""Files of a store that no broker of this process serves, read without changing a byte of them."""

import errno
import os
from collections import deque
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Self

from mq.client.machine import files
from mq.daemons.broker.store.mapped_file import extent_end
from mq.daemons.broker.store.windows import MappedSource
from mq.daemons.open_files import most_open_files

_PIECE = 1 << 20  # bytes looked at in one go for zeros
_MOST_OPEN = 16_384
_MOST_WINDOWS = 4  # files that keep what was read last


class OpenFiles:
    """Files that are open: as many as a process may have, the last that were asked for; and of the
    last few of them the part that was read last. A context manager that closes all.

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
        """Of a file that was opened now; the one that was opened longest ago is closed."""
        if len(self._open) == self._open.maxlen:
            self._open.popleft().close()
        self._open.append(file)

    def keep_window(self, file: "ReadOnlyFile") -> None:
        """Of a file that has a part in memory now, and had none."""
        if len(self._windowed) == self._windowed.maxlen:
            self._windowed.popleft().forget_window()
        self._windowed.append(file)

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


class ReadOnlyFile(MappedSource):
    """A file of a store; `start` is the offset that it is named after.

    It is opened at once, so that what a broker removes meanwhile can be read to its end, and once
    more where `opened` had to close it. It is not mapped: where another process made it shorter, as
    a broker does on a full disk, a look at a map would end this one with SIGBUS.
    """

    def __init__(self, path: Path, start: int, opened: OpenFiles) -> None:
        """Raises OSError."""
        super().__init__()
        self.path = path
        self.start = start
        self._opened = opened
        #: Positions of the blocks that `read_around` could not read.
        self.unreadable: set[int] = set()
        self._descriptor = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
        opened.keep(self)
        status = files.fstat(self._descriptor)
        self.size = status.st_size
        self._identity = status.st_dev, status.st_ino, status.st_size
        self._extent_end = extent_end(self._descriptor)  # later its name may be another file's

    def read(self, position: int, size: int) -> bytes:
        """So many bytes from a position on, of those that there were when it was opened.

        Raises OSError where there are fewer by now, or it had to be opened again and is gone.
        """
        if self._descriptor < 0:
            self._open_again()
        left = max(0, min(size, self.size - position))
        pieces = []
        while left:
            try:
                piece = files.pread(self._descriptor, left, position)
            except OSError as error:  # it does not name the file
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
        """Read a part with zeros for the blocks that cannot be read; also their positions.

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
            self.close()  # else whoever reads on would read another file
        why = "removed or replaced while it was read, by a broker that runs: try again"
        raise OSError(errno.ESTALE, why, str(self.path))

    def close(self) -> None:
        """Idempotent. It is opened anew when it is read."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            files.close(descriptor)

    @property
    def end(self) -> int:
        return self.start + self.size

    @cached_property
    def data_end(self) -> int:
        """The position after the last byte that is not zero, or that cannot be read. Raises as
        `read` for other errors."""
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
