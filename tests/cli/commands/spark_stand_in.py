"""A spark-submit that is controlled by a test and records its input.

Only Spark is scripted: the tests cover how `mq spark submit` starts it, its output, and how it
handles the result. tests/pipeline/jobs/test_submitted.py uses the real one.
"""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

_SCRIPT = """\
#!{python}
import json, os, sys, time

def answer(value):
    with open(given["answer"], "w") as file:
        json.dump(value, file)

path = sys.argv[-1]
with open(path) as file:
    given = json.load(file)
seen = {{
    "arguments": sys.argv[1:], "variables": dict(os.environ), "given": given,
    "mode": os.stat(path).st_mode & 0o777,
    "folderMode": os.stat(os.path.dirname(path)).st_mode & 0o777,
}}
with open({seen!r}, "w") as file:
    json.dump(seen, file)
{behaviour}
"""


class StandIn:
    """A SPARK_HOME in a folder, and the record of its spark-submit."""

    def __init__(self, folder: Path, behaviour: str) -> None:
        self.home = folder / "spark"
        self._seen = folder / "seen.json"
        script = self.home / "bin" / "spark-submit"
        script.parent.mkdir(parents=True)
        text = _SCRIPT.format(
            python=sys.executable, seen=str(self._seen), behaviour=textwrap.dedent(behaviour)
        )
        script.write_text(text)
        script.chmod(0o755)

    @property
    def seen(self) -> Any:
        """Return its arguments, variables, and the file that describes the job."""
        return json.loads(self._seen.read_text())


def java(folder: Path, release: str = "17.0.15") -> Path:
    """Create a JAVA_HOME whose java only prints its release."""
    script = folder / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}\"' >&2\n")
    script.chmod(0o755)
    return folder / "java"
