"""Jobs on topics: each a function on DataFrames, and a command by `mq spark submit`.

`mq.pipeline.jobs.declaration` says what a job's module holds.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq.pipeline.jobs.declaration import Job

# The names on the command line; the module has underscores for hyphens.
JOBS = (
    "archive",
    "compaction",
    "count",
    "dead-letters",
    "lag-report",
    "offset-export",
    "replay",
    "skew",
    "trace-analysis",
)


class UnknownJob(LookupError):
    """There is no job of that name; `near` are names that it may have been meant to be."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no job {name!r}")
        self.near = get_close_matches(name.lower().replace("_", "-"), JOBS, 2, 0.5)


def load(name: str) -> "Job":
    """Import a job. Raises UnknownJob."""
    if name not in JOBS:
        raise UnknownJob(name)
    from mq.pipeline.jobs.declaration import Job

    return Job(name, import_module(f"mq.pipeline.jobs.{name.replace('-', '_')}"))
