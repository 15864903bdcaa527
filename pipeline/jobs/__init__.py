"""Jobs on topics: each is a function on DataFrames, and a command by `mq spark submit`.

`mq.pipeline.jobs.declaration` describes the contents of a job's module.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mq.pipeline.jobs.declaration import Job

# Names on the command line; module names have underscores instead of hyphens.
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
    """There is no job of that name; `near` has similar names."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no job {name!r}")
        self.near = get_close_matches(name.lower().replace("_", "-"), JOBS, 2, 0.5)


def load(name: str) -> "Job":
    """Import a job. Raises UnknownJob."""
    if name not in JOBS:
        raise UnknownJob(name)
    from mq.pipeline.jobs.declaration import Job

    return Job(name, import_module(f"mq.pipeline.jobs.{name.replace('-', '_')}"))
