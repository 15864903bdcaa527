"""The reasons for refusing a message."""

import errno
from enum import StrEnum

OVERFLOW = 419  # SERVER_RECEIVE_OVERFLOW
FAILED = 500  # INTERNAL_SERVER_ERROR
UNAVAILABLE = 503  # SERVICE_UNAVAILABLE: Java's producers leave this broker alone for 50 s


class FlushMode(StrEnum):
    """The durability of an acknowledged message (docs/decisions/0064)."""

    sync = "sync"  # on the disk: survives a power cut
    os = "os"  # written to the file: survives the end of the process, including kill -9
    memory = "memory"  # accepted: unwritten messages are lost with the process, as in Java


class Refused(Exception):
    """A message was not stored; ``code`` is sent to its sender."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def of_error(error: OSError) -> Refused:
    """Return the refusal for a failed write; the log is unchanged."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Refused(OVERFLOW if full else FAILED, f"the store cannot be written: {error.strerror}")
