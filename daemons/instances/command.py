"""The command line with which a daemon starts another command of this mq."""

import sys
from pathlib import Path


def this_mq() -> list[str]:
    """The words that run this mq, whatever the current folder contains."""
    mine = str(Path(sys.modules["mq"].__file__ or "").parents[1])
    start = f"import sys; sys.path.insert(0, {mine!r}); from mq.cli.entry import app; app()"
    return [sys.executable, "-P", "-c", start]
