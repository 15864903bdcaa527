"""Options of Spark's JVMs in tests: they live for seconds, or wait most of the time."""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.interop.jvm import jdk, locked

_ROOT = Path(__file__).parents[2]
_CACHE = _ROOT / ".cache" / "spark"
# Making an archive takes 33 s of a core, and a test that waits for it may take 120 s. If a busy
# machine does not finish by then, a later run tries again.
_MAKING_SECONDS = 100
_NEXT_TRY_SECONDS = 1800
# Neither thorough compilation nor a multithreaded collector pays off.
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@functools.cache
def spark_home() -> Path:
    """Return the Spark that pip installed, as links, without its Python.

    Spark makes its Python processes import pyspark from a zip first, which keeps no compiled files,
    so each process takes 0.6 s longer. Without the zip they import the package installed by pip.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = _CACHE / f"home-{_digest(str(installed), pyspark.__version__)}"
    with locked(_CACHE / "home.lock"):
        if not home.is_dir():
            partial = home.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            for name in ("bin", "jars", "sbin"):
                (partial / name).symlink_to(installed / name)
            partial.rename(home)
    return home


@contextmanager
def starting_spark() -> Iterator[None]:
    """While this is open, a JVM started for a session of this process takes Spark from there."""
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(spark_home())
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]
        if before is not None:
            os.environ["SPARK_HOME"] = before


@functools.cache
def jvm_options() -> str:
    """Options for drivers, executors and daemons.

    An archive of loaded classes (class data sharing) halves the cost of a start. It is made once
    for each Spark and JDK.
    """
    archive = _archive()
    with locked(archive.with_suffix(".lock")):
        if not archive.exists() or _is_to_be_tried_again(archive):
            _make(archive)
    if not archive.stat().st_size:
        return _SHORT_LIVED
    return f"{_SHORT_LIVED} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable"


def _is_to_be_tried_again(archive: Path) -> bool:
    status = archive.stat()
    return not status.st_size and time.time() - status.st_mtime > _NEXT_TRY_SECONDS


def _make(archive: Path) -> None:
    """Leave an empty file on failure, so that processes do not try it one after the other."""
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    options = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={partial} -Xlog:disable"
    settings = {
        "spark.driver.extraJavaOptions": options,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{archive.parent}/local",
    }
    arguments = [f"{name}={value}" for name, value in settings.items()]
    # The JVM writes it when it ends, and buffers its output until then.
    with starting_spark(), suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "tests.pipeline.first_queries", *arguments],
            cwd=_ROOT,
            capture_output=True,
            timeout=_MAKING_SECONDS,
            check=False,
        )
    if partial.exists():
        partial.rename(archive)
    else:
        archive.touch()


def _archive() -> Path:
    """The name contains the versions of Spark and the JDK, because no other version can read it."""
    import pyspark

    queries = Path(__file__).with_name("first_queries.py").read_text(encoding="utf-8")
    parts = (jdk(), str(spark_home()), pyspark.__version__, queries)
    return _CACHE / f"classes-{_digest(*parts)}.jsa"


def _digest(*parts: str) -> str:
    return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()[:12]
