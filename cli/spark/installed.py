"""Finds spark-submit and a JDK, or explains how to install them."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status

LEAST_JAVA = 17  # required by Spark 4


class Spark(NamedTuple):
    """An installation. `home` is None if only a spark-submit on the PATH is known."""

    submit: Path
    home: Path | None


def find_spark(given: str | None, variables: Mapping[str, str]) -> Spark:
    """Return the Spark of --spark-home, else of SPARK_HOME, else of pip, else of the PATH.

    Raises CommandError if there is none.
    """
    for origin, home in (("--spark-home", given), ("SPARK_HOME", variables.get("SPARK_HOME"))):
        if home:
            submit = Path(home) / "bin" / "spark-submit"
            if not submit.is_file():
                raise CommandError(
                    f"{origin} is {home}, which has no bin/spark-submit",
                    hint=f"correct {origin}, or unset it: pip install 'mq[spark]' includes Spark",
                    status=Status.CONFIG,
                )
            return Spark(submit, Path(home))
    of_pip = _of_pip()
    if of_pip is not None:
        return Spark(of_pip / "bin" / "spark-submit", of_pip)
    on_path = shutil.which("spark-submit", path=_path(variables))
    if on_path is not None:
        return Spark(Path(on_path), None)
    raise CommandError(
        "no Spark found: neither --spark-home nor SPARK_HOME, nor pyspark, nor spark-submit on the "
        "PATH",
        hint="pip install 'mq[spark]', or export SPARK_HOME=DIRECTORY of Spark 4.0 or later",
        status=Status.UNAVAILABLE,
    )


def check_java(variables: Mapping[str, str]) -> None:
    """Raise CommandError unless a Java for Spark is installed."""
    hint = f"install it (apt-get install openjdk-{LEAST_JAVA}-jre-headless), or set JAVA_HOME"
    home = variables.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            raise CommandError(
                f"JAVA_HOME is {home}, which has no bin/java",
                hint=hint,
                status=Status.CONFIG,
            )
    else:
        found = shutil.which("java", path=_path(variables))
        if found is None:
            raise CommandError(
                f"no Java found; Spark needs release {LEAST_JAVA} or later",
                hint=hint,
                status=Status.UNAVAILABLE,
            )
        java = found
    release = _release(java)
    if release is not None and release < LEAST_JAVA:
        raise CommandError(
            f"{java} is Java {release}; Spark needs release {LEAST_JAVA} or later",
            hint=hint,
            status=Status.CONFIG,
        )


def _path(variables: Mapping[str, str]) -> str:
    return dict(variables).get("PATH", os.defpath)


def _of_pip() -> Path | None:
    """Return the directory of the package pyspark, without importing it."""
    found = find_spec("pyspark")
    for folder in (found.submodule_search_locations if found else None) or ():
        if (Path(folder) / "bin" / "spark-submit").is_file():
            return Path(folder)
    return None


def _release(java: str) -> int | None:
    """Return 17 for `openjdk version "17.0.15"`, 8 for `java version "1.8.0_402"`; or None."""
    try:
        shown = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(rb'version "(?:1\.)?(\d+)', shown.stderr)
    return int(found[1]) if found else None
