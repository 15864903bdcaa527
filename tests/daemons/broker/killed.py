"""A store as a kill of its broker leaves it."""

import shutil
from pathlib import Path

from mq.client.machine import files
from tests.daemons.broker.store.stores import as_of_a_kill


def copy_as_killed(root: Path, target: Path) -> None:
    """Copy the store of a broker that runs: of a file of the log, a gigabyte, what is in it."""
    shutil.copytree(*(root, target), copy_function=_copy, ignore=shutil.ignore_patterns("*.tmp"))
    as_of_a_kill(target)


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as given, open(target, "xb") as copy:
        size = Path(source).stat().st_size
        copy.truncate(size)
        files.copy_data(given.fileno(), 0, size, copy.fileno(), 0)
