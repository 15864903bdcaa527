"""A store after a kill of its broker."""

import shutil
from pathlib import Path

from mq.client.machine import files
from tests.daemons.broker.store.stores import as_of_a_kill


def copy_as_killed(root: Path, target: Path) -> None:
    """Copy the store of a running broker; of a log file, a gigabyte, only the written part."""
    shutil.copytree(*(root, target), copy_function=_copy, ignore=shutil.ignore_patterns("*.tmp"))
    as_of_a_kill(target)


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as given, open(target, "xb") as copy:
        size = Path(source).stat().st_size
        copy.truncate(size)
        files.copy_data(given.fileno(), 0, size, copy.fileno(), 0)
