"""Several processes under one: how they are stopped, whatever they do."""

import json
import subprocess
import sys
from pathlib import Path

_SUPERVISOR = """
import json, sys
from mq.daemons.instances.supervisor import Instances
from mq.daemons.service import run
commands = json.loads(sys.argv[1])
sys.exit(run(lambda: Instances("brokers", commands, ["serves", "hangs"])))
"""
_SERVES = """
import os, signal, socket
told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
told.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
signal.pause()
"""
_HANGS = """
import os, signal
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""


def test_sigterm_while_one_has_not_begun_stops_all_of_them(tmp_path: Path) -> None:
    late = tmp_path / "late"
    sources = {"serves": _SERVES, "hangs": _HANGS, "late": f"open({str(late)!r}, 'w').close()"}
    commands = {name: [sys.executable, "-c", source] for name, source in sources.items()}
    ended = subprocess.run(
        [sys.executable, "-c", _SUPERVISOR, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.endswith(" stopped\n")
    assert not late.exists()
