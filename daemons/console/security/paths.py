"""Redirect targets from the browser: only paths of this console."""

import re

# One slash, then no character that browsers treat as another host or as the end of a header.
_PATH = re.compile(r"/(?![/\\])[^\\\x00-\x20\x7f]*")


def safe_next(given: str, prefix: str) -> str:
    """Return the path below the prefix of `next=`; the first page for anything else."""
    if not _PATH.fullmatch(given) or not given.startswith(f"{prefix}/"):
        return "/"
    path = given.removeprefix(prefix)
    return path if _PATH.fullmatch(path) else "/"
