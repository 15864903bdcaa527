"""Archives of loaded classes (class data sharing): a JVM that maps one starts in half the time."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.interop.jvm import jdk

# Without an archive, or with another JDK's, the JVM prints warnings into the output that a test
# reads.
_QUIET = ["-Xshare:auto", "-Xlog:disable"]


def class_path(folder: Path) -> str:
    """The jars of `folder`, in the order in which the archive was made."""
    return os.pathsep.join(sorted(str(jar) for jar in folder.glob("*.jar")))


def options(folder: Path) -> list[str]:
    """Return the options that make a JVM use the archive of `folder`, if this JDK has one."""
    archive = _path(folder)
    return [*_QUIET, f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []


def is_wanted(folder: Path) -> bool:
    """Whether there is no archive for this JDK yet, not even a failed attempt."""
    return not (_path(folder).exists() or _failed(folder).exists())


def make(folder: Path, jvm_flags: list[str], load: Callable[[str], None]) -> None:
    """Make an archive of the classes that programs load: `load` runs them with the given JVM
    option.

    A failure raises no error; it is recorded, so that there is only one attempt.
    """
    lists = _path(folder).with_suffix(".lists")
    shutil.rmtree(lists, ignore_errors=True)
    lists.mkdir(parents=True)
    try:
        load(f"-XX:DumpLoadedClassList={lists}/%p")
    except OSError as error:  # also a TimeoutError; the tests of these programs fail then
        _failed(folder).write_text(str(error), encoding="utf-8")
        return
    every = {
        line
        for file in lists.iterdir()
        for line in file.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    }
    loaded = lists / "all"
    loaded.write_text("\n".join(sorted(every)), encoding="utf-8")
    partial = lists / "archive"
    dump = ["-Xshare:dump", f"-XX:SharedClassListFile={loaded}", f"-XX:SharedArchiveFile={partial}"]
    command = ["java", *jvm_flags, *dump, "-cp", class_path(folder)]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode == 0 and partial.is_file():
        partial.rename(_path(folder))
    else:
        _failed(folder).write_bytes(made.stderr[-10_000:])
    shutil.rmtree(lists)


def _path(folder: Path) -> Path:
    """Next to the folder of the jars. Its name has the JDK version, because another JDK cannot read
    it.
    """
    digest = hashlib.sha256(jdk().encode()).hexdigest()[:12]
    return folder.with_name(f"{folder.name}-{digest}.jsa")


def _failed(folder: Path) -> Path:
    return _path(folder).with_suffix(".failed")
