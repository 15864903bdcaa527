"""Errors of the store, and the damage that it found.

StoreError
  ├── StoreRefused     messages are refused; has the remark and the reply code
  ├── StoreLocked      another process uses this store
  └── StoreLoadError   the store cannot be opened as it is

QueuesLeft           an OSError: some queues of deleted topics could not be deleted
"""

from dataclasses import dataclass

from mq.daemons.service import CannotStart, InUse
from mq.protocol.codes import ResponseCode

# The reply codes for senders whose message is in the log nevertheless.
STORED_ALL_THE_SAME = frozenset(
    (
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )
)


class StoreError(Exception):
    """An error of the store."""


class StoreRefused(StoreError):
    """A message was refused. ``code`` is the reply code for its sender, with the text as remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class QueuesLeft(OSError):
    """Topics count as deleted, but some of their queues could not be deleted from the disk."""


class StoreLocked(StoreError, InUse):
    """Another process has the store open."""


class StoreLoadError(StoreError, CannotStart):
    """The store on disk cannot be opened; an administrator has to check it first."""


@dataclass(frozen=True)
class Damage:
    """A part of the log that recovery truncated, or left in place and skipped."""

    path: str
    offset: int  # physical offset in the log, or byte offset in another file
    dropped: int  # bytes
    why: str
    is_cut: bool = True  # False: it is left in place

    def __str__(self) -> str:
        if not self.is_cut:
            return (
                f"{self.path}: skipped {self.dropped} bytes at offset {self.offset}: "
                f"{self.why}; mq store repair closes the gap"
            )
        return f"{self.path}: cut {self.dropped} bytes at offset {self.offset}: {self.why}"
