"""A spark-submit that does what a test says, in no time; it writes down what it was given.

The peer is scripted, the command is not: what is tested is how `mq spark submit` starts it, what it
shows to whom, and how it takes the answer. tests/pipeline/jobs/test_submitted.py has the real one.
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
    """A SPARK_HOME in a folder, and what its spark-submit has seen."""

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
        """Its arguments, variables, and the file that describes the job."""
        return json.loads(self._seen.read_text())


def java(folder: Path, release: str = "17.0.15") -> Path:
    """A JAVA_HOME whose java only tells its release."""
    script = folder / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}\"' >&2\n")
    script.chmod(0o755)
    return folder / "java"
