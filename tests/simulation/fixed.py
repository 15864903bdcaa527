"""What has to be so before Python begins: the order of sets of text, and the time zone."""

import os
import sys

_WANTED = {"PYTHONHASHSEED": "0", "TZ": "UTC"}


def fix(arguments: list[str]) -> None:
    """Begin anew with the environment that makes a seed mean the same, unless it is so already."""
    if any(os.environ.get(name) != value for name, value in _WANTED.items()):
        os.environ.update(_WANTED)
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *arguments])
