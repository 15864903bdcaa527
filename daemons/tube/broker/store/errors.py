"""Why a store takes no message."""

import errno
from enum import StrEnum

OVERFLOW = 419  # SERVER_RECEIVE_OVERFLOW
FAILED = 500  # INTERNAL_SERVER_ERROR
UNAVAILABLE = 503  # SERVICE_UNAVAILABLE: Java's producers leave this broker alone for 50 s


class FlushMode(StrEnum):
    """What the answer to a send promises (docs/decisions/0064)."""

    sync = "sync"  # on the disk: survives a power cut
    os = "os"  # written to the file: survives the end of the process, kill -9 included
    memory = "memory"  # taken: what is not yet written is lost with the process, as Java has it


class Refused(Exception):
    """A message was not stored; ``code`` is what its sender is told."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def of_error(error: OSError) -> Refused:
    """What a sender is told of a write that failed; the log is as it was before."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Refused(OVERFLOW if full else FAILED, f"the store cannot be written: {error.strerror}")
