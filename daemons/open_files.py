"""The limit of files and connections that this process may have open at once (RLIMIT_NOFILE)."""

import resource

# Replaces "unlimited", which some systems have, by the maximum that Linux allows.
_UNLIMITED = 1 << 20


def most_open_files() -> int:
    """The current limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
