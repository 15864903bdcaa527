"""Tables, writes, stores and jobs with earlier releases of Spark.

MQ_SPARK_PYTHONS lists interpreters, separated by colons, in whose environments such a release, mq
and pytest are installed. `make test-spark` creates these environments and runs this.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

PYTHONS = [each for each in os.environ.get("MQ_SPARK_PYTHONS", "").split(os.pathsep) if each]
ROOT = Path(__file__).parents[2]
FILES = (
    "test_decoder.py",
    "test_exactly_once.py",
    "test_pushdown.py",
    "test_sink.py",
    "test_sink_tasks.py",
    "test_source.py",
    "test_store_source.py",
    "jobs",
)
# Ignores Python sockets that pyspark 4.0 leaves to the collector; leaves out clusters of processes,
# which take long.
OPTIONS = (
    *("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
    *("-k", "not executors and not killed", "-p", "no:cacheprovider", "--quiet"),
)


@pytest.mark.skipif(not PYTHONS, reason="MQ_SPARK_PYTHONS names no interpreter: make test-spark")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("python", PYTHONS)
def test_earlier_releases_pass_the_tests_of_their_features(python: str) -> None:
    files = [str(ROOT / "tests" / "pipeline" / name) for name in FILES]
    ended = subprocess.run(
        [python, "-m", "pytest", *OPTIONS, *files],
        cwd=ROOT,
        env={**os.environ, "MQ_SPARK_PYTHONS": "", "CI": "true"},  # a missing Spark is a failure
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-8000:]
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None and int(passed[1]) > 100, ended.stdout[-2000:]
