"""A disk that refuses one write of a broker."""

import asyncio
import errno
import os

import pytest

from mq.client.machine import files


def refuse_one(monkeypatch: pytest.MonkeyPatch, having: bytes) -> asyncio.Event:
    """Make the next write of something fail, and no later one; the event is set when it has
    failed."""
    real = os.pwrite
    failed = asyncio.Event()

    def fail_once(descriptor: int, data: bytes | memoryview, position: int) -> int:
        if not failed.is_set() and having in bytes(data):
            failed.set()
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, data, position)

    monkeypatch.setattr(files, "pwrite", fail_once)
    return failed
