"""Damage in a commit log, found without Spark."""

from collections.abc import Sequence

from mq.pipeline.errors import OptionError
from mq.pipeline.store_files import Damage, LogFile, find_files, gaps, split
from mq.pipeline.store_options import example
from mq.pipeline.store_scan import PartScan


def damage(*paths: str) -> list[Damage]:
    """Return the damage in the commit log of a store, found in this process, file by file.

    For a large store `format("rocketmq-store").option("report", "damage")` works in parallel.
    Raises OptionError for a path without a log.
    """
    files = checked_files(paths)
    found = gaps(files)
    for file in files:
        for part in split(file, file.size or 1):
            found += [each for each in PartScan(part) if isinstance(each, Damage)]
    return sorted(found)


def checked_files(paths: Sequence[str]) -> list[LogFile]:
    """Return the files of a log. Raises OptionError for paths without one."""
    try:
        return find_files(paths)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        raise OptionError("path", reason, example("path")) from None
    except ValueError as error:
        raise OptionError("path", str(error), example("path")) from None
