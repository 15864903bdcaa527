"""docs/commands.md, run again: its commands print what it shows."""

import re
import shlex
from pathlib import Path

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text("utf-8")
_STEP = re.compile(r"^\$ mq (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_what_the_page_shows_is_what_is_printed(cluster: Mq, standalone: Standalone) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    steps = [step for block in blocks for step in _STEP.findall(block)]
    assert len(steps) >= 8
    for command, shown in steps:
        finished = cluster(*shlex.split(command))
        printed = finished.out + finished.err
        printed = printed.replace(standalone.broker.address, "127.0.0.1:10911")
        assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines(), command
