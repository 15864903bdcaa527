"""Runs the simulation in a process that has the simulated machine, for tests in one that has not."""

import json
import os
import subprocess
import sys
from typing import Any


def simulate(*arguments: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """`python -m tests.simulation` with arguments."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=seconds,
        env={name: text for name, text in os.environ.items() if name != "PYTHONHASHSEED"},
        check=False,
    )


def checks(*names: str) -> Any:
    """What checks of checks.py find out, by name."""
    done = simulate("--check", *names)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
