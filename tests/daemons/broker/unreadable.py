"""A block of the commit log that the disk cannot read."""

import contextlib
import errno
import os
from collections.abc import Iterator

import pytest

from mq.client.machine import files


@contextlib.contextmanager
def unreadable(block: int) -> Iterator[None]:
    """Have the disk fail to read a block of the commit log, by its position in the first file."""
    read = files.pread

    def pread(descriptor: int, size: int, position: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        end = block + files.BLOCK
        if "commitlog" not in path or position >= end or position + size <= block:
            return read(descriptor, size, position)
        if position < block:
            return read(descriptor, block - position, position)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "pread", pread)
        yield
