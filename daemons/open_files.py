"""How many files and connections this process may have open at once (RLIMIT_NOFILE)."""

import resource

# In place of no limit, which some systems have: as many as Linux allows to set.
_UNLIMITED = 1 << 20


def most_open_files() -> int:
    """The limit as it is now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
