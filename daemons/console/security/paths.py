"""Addresses that a browser names, to be led to: only paths of this console."""

import re

# One slash, then anything but what a browser takes for another host, or for the end of a header.
_PATH = re.compile(r"/(?![/\\])[^\\\x00-\x20\x7f]*")


def safe_next(given: str, prefix: str) -> str:
    """The path below the prefix that `next=` asks for; the first page for anything else."""
    if not _PATH.fullmatch(given) or not given.startswith(f"{prefix}/"):
        return "/"
    path = given.removeprefix(prefix)
    return path if _PATH.fullmatch(path) else "/"
