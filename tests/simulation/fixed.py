"""Conditions before Python starts: the order of sets of text, and the time zone."""

import os
import sys

_WANTED = {"PYTHONHASHSEED": "0", "TZ": "UTC"}


def fix(arguments: list[str]) -> None:
    """Restart the process with a deterministic environment, unless it has one."""
    if any(os.environ.get(name) != value for name, value in _WANTED.items()):
        os.environ.update(_WANTED)
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *arguments])
