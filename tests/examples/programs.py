"""Programs of the folder examples/, run as processes."""

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from tests import processes

EXAMPLES = Path(__file__).parents[2] / "examples"


def running(
    arguments: list[str], name_server: str, folder: Path, **environment: str
) -> AbstractContextManager["subprocess.Popen[str]"]:
    """Python with these arguments, in the folder of the examples; killed at the end."""
    return processes.running(
        [sys.executable, *arguments],
        cwd=EXAMPLES,
        env={
            **os.environ,
            "NAMESRV_ADDR": name_server,
            "ORDERS_DB": str(folder / "orders.db"),
            "BILLS_DB": str(folder / "bills.db"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        stdin=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def wait_for(process: "subprocess.Popen[str]", words: str) -> str:
    """The first line with these words. The test's own timeout ends the wait."""
    assert process.stdout is not None
    before = []
    for line in process.stdout:
        if words in line:
            return line
        before.append(line)
    raise AssertionError(f"it has ended without {words!r}:\n{''.join(before)}")
