"""The soak test in its short form: see bench/soak.py for its purpose."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.soak import Ledger, report

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_twenty_seconds_of_mixed_load_and_kills_lose_nothing() -> None:
    command = [sys.executable, "-m", "bench.soak", "--minutes", "0.2", "--kill-every", "5"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=220)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-5000:]
    figures = json.loads(ended.stdout)
    assert figures["wrong"] == []
    assert figures["acknowledged"] > 0 and figures["kills"] >= 1
    assert figures["consumed"]["filtered"] > 0


def test_lost_doubled_and_made_up_messages_are_found() -> None:
    ledger = Ledger()
    ledger.sent = {f"plain-{n}": 1 for n in range(6)}
    ledger.acknowledged = set(ledger.sent)
    for group in ("all", "filtered"):
        for identity in ledger.due(group):
            ledger.received[group][identity].append(("id", 100.0))
    assert report(ledger)[1] == []
    del ledger.received["all"]["plain-3"]
    ledger.received["all"]["plain-77"].append(("id", 100.0))
    ledger.received["filtered"]["plain-1"].append(("id", 100.0))
    ledger.received["all"]["plain-4"].append(("id", 150.0))
    ledger.rolled_back.add("plain-5")
    ledger.memory = [[20.0] * 10, [90.0] * 10]
    wrong = "\n".join(report(ledger)[1])
    assert "all: 1 lost, such as ['plain-3']" in wrong
    assert "plain-77 was never sent" in wrong
    assert "filtered: plain-1 does not fit the filter" in wrong
    assert "plain-4 came again without a reason" in wrong
    assert "plain-5 was rolled back, and came" in wrong
    assert "RssAnon grew by 70.0 MB" in wrong
    ledger.kills = [120.0]
    assert "plain-4" not in "\n".join(report(ledger)[1])
