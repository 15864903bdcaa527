"""What this process has taken of its machine."""

import os
import re
from typing import NamedTuple

_PRIVATE = re.compile(rb"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class Usage(NamedTuple):
    """CPU time since its start, user and system, in seconds; private memory in bytes, 0 where the
    system does not tell it. Mapped files and what is shared are not part of it."""

    cpu_seconds: float
    private_bytes: int


def usage() -> Usage:
    """As of now."""
    times = os.times()
    try:
        with open("/proc/self/status", "rb") as status:
            found = _PRIVATE.search(status.read())
    except OSError:
        found = None
    return Usage(times.user + times.system, int(found[1]) * 1024 if found else 0)
