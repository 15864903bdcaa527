"""Commands as separate processes with a measurement of their memory."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# The kernel's value for a child includes the memory of its parent at the start.
_TELL = """
import os, re, sys
from mq.cli.main import app
try:
    app()
finally:
    peak = re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())
    open(os.environ["PEAK_FILE"], "w").write(peak.group(1))
"""


class Peak(NamedTuple):
    """A command that has ended: its status, its last line of errors, its peak memory."""

    status: int
    err: str
    bytes: int


def peak_of(
    words: Sequence[str],
    variables: Mapping[str, str],
    *,
    out: Path | None = None,
    timeout: float = 120,
) -> Peak:
    """Run `mq` with these words; what it prints goes to a file, or nowhere. Raises TimeoutExpired.
    Linux only."""
    with tempfile.NamedTemporaryFile() as file, open(out or os.devnull, "wb") as stdout:
        ended = subprocess.run(
            [sys.executable, "-c", _TELL, *words],
            env={**os.environ, **variables, "PEAK_FILE": file.name},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=timeout,
        )
        told = Path(file.name).read_text()
    err = ended.stderr.strip().rpartition("\n")[2]
    return Peak(ended.returncode, err, int(told or 0) * 1024)
