"""How a daemon starts another command of this very mq."""

import sys
from pathlib import Path


def this_mq() -> list[str]:
    """What runs this very mq, whatever lies in the folder that this is started in."""
    mine = str(Path(sys.modules["mq"].__file__ or "").parents[1])
    start = f"import sys; sys.path.insert(0, {mine!r}); from mq.cli.entry import app; app()"
    return [sys.executable, "-P", "-c", start]
