"""Crash points of short workloads: a bounded part of `python -m tests.simulation points`."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import IS_LONG

# Defects that are found at once, soon, and only by a crash during the start after a crash.
AT_ONCE = ("log-is-not-synced", "deletion-is-not-saved", "tube-recovery-is-not-synced")
SOON = ("name-of-log-file-is-not-synced", "new-store-is-not-synced")
LATER = (
    "tube-checkpoint-is-not-lowered",
    "tube-files-are-not-named",
    "tube-recovery-is-not-synced",
    "tube-tail-is-not-written-again",
    "queues-are-not-synced",
    "index-is-not-synced",
    "checkpoint-is-not-lowered",
    "short-log-file-is-refused",
    "found-names-are-not-synced",
)
_SUMMARY = re.compile(r"(\d+) starts; again (\d+) points, (\d+) starts; .* (\d+) failed$", re.M)


def points(*arguments: str) -> tuple[int, int, str]:
    """The exit status, how many starts were made, and what was printed."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "TZ": "UTC"}
    command = [sys.executable, "-m", "tests.simulation", "points", *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=3000, check=False
    )
    assert not done.stderr
    found = _SUMMARY.findall(done.stdout)
    return done.returncode, sum(int(one[0]) + int(one[2]) for one in found), done.stdout


@pytest.mark.longer
@pytest.mark.timeout(3000 if IS_LONG else 300)
def test_every_start_behind_a_crash_finds_what_was_promised() -> None:
    limits = (
        ("--all", "--seconds", "40", "--most", "24")
        if IS_LONG
        else ("--most", "3", "--every", "32")
    )
    status, starts, output = points(*limits)
    assert status == 0, output
    assert starts > (20_000 if IS_LONG else 100), output


@pytest.mark.longer
@pytest.mark.timeout(600 if IS_LONG else 300)
def test_what_a_store_leaves_out_is_found() -> None:
    for name in (*AT_ONCE, *SOON, *LATER) if IS_LONG else AT_ONCE:
        times = "4" if name.startswith("tube") else "1"
        more = ("--again", times) if name in LATER else ()
        status, _, output = points("--planted", name, "--most", "6", *more)
        assert status == 1 and "--point" in output, f"{name}: {output}"
