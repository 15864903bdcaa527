"""The tables of jobs as those of commands."""

from collections.abc import Sequence

from mq.cli.show.result import Column, Kind
from mq.pipeline.jobs.declaration import Job
from mq.pipeline.jobs.job_result import Shape


def columns(shape: Shape) -> tuple[Column, ...]:
    """The columns of a job's table as those of a result."""
    return tuple(Column(each.name, each.title, Kind(each.kind)) for each in shape.columns)


def tables(jobs: Sequence[Job]) -> tuple[tuple[Column, ...], ...]:
    """The columns of all tables of these jobs, each kind once."""
    return tuple(dict.fromkeys(columns(shape) for job in jobs for shape in job.tables))
