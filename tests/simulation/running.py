"""Runs the simulation in a process of its own, which has the simulated machine, for tests."""

import json
import os
import subprocess
import sys
from typing import Any


def simulate(*arguments: str, seconds: float = 280.0) -> subprocess.CompletedProcess[str]:
    """`python -m tests.simulation` with arguments."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
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
