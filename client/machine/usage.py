"""The resource usage of this process."""

import os
import re
from typing import NamedTuple

_PRIVATE = re.compile(rb"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class Usage(NamedTuple):
    """Resource usage of a process.

    CPU time since its start, user and system, in seconds; private memory in bytes, 0 if the system
    does not report it. Mapped files and shared memory are not included.
    """

    cpu_seconds: float
    private_bytes: int


def usage() -> Usage:
    """Return the current usage."""
    times = os.times()
    try:
        with open("/proc/self/status", "rb") as status:
            found = _PRIVATE.search(status.read())
    except OSError:
        found = None
    return Usage(times.user + times.system, int(found[1]) * 1024 if found else 0)
