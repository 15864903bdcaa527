"""A tail that continues while messages arrive."""

import subprocess
import sys
from contextlib import AbstractContextManager

from tests.processes import running


def following(*arguments: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    """`mq tail` in a process of its own."""
    return running([sys.executable, "-u", "-m", "mq", "tail", *arguments])
