"""Why the store would not do something, and what it found damaged.

StoreError
├── StoreRefused     it takes no messages now; the remark says why and the reply code goes with it
├── StoreLocked      another process has this directory open
└── StoreLoadError   the directory cannot be served as it is

QueuesLeft           an OSError: what is deleted has queues that cannot be taken off the disk
"""

from dataclasses import dataclass

from mq.daemons.service import CannotStart, InUse
from mq.protocol.codes import ResponseCode

#: What a sender is told whose message is in the log.
STORED_ALL_THE_SAME = frozenset(
    (
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )
)


class StoreError(Exception):
    """The store would not or could not."""


class StoreRefused(StoreError):
    """A message was not stored. ``code`` is what its sender is told, with the text as remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class QueuesLeft(OSError):
    """Topics count as deleted, but not all of their queues could be taken off the disk."""


class StoreLocked(StoreError, InUse):
    """Another process has the store open."""


class StoreLoadError(StoreError, CannotStart):
    """What is on disk cannot be served: a human has to look first."""


@dataclass(frozen=True)
class Damage:
    """A part of the log that recovery cut away, or left in place and skipped."""

    path: str
    offset: int  # physical offset in the log, or byte offset in another file
    dropped: int  # bytes
    why: str
    is_cut: bool = True  # else it is left in place

    def __str__(self) -> str:
        if not self.is_cut:
            return (
                f"{self.path}: skipped {self.dropped} bytes at offset {self.offset}: "
                f"{self.why}; mq store repair closes the gap"
            )
        return f"{self.path}: cut {self.dropped} bytes at offset {self.offset}: {self.why}"
