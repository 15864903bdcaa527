"""The tables of jobs as tables of commands."""

from collections.abc import Sequence

from mq.cli.show.result import Column, Kind
from mq.pipeline.jobs.declaration import Job
from mq.pipeline.jobs.job_result import Shape


def columns(shape: Shape) -> tuple[Column, ...]:
    """Return the columns of a job's table as columns of a result."""
    return tuple(Column(each.name, each.title, Kind(each.kind)) for each in shape.columns)


def tables(jobs: Sequence[Job]) -> tuple[tuple[Column, ...], ...]:
    """Return the columns of all tables of these jobs, without duplicates."""
    return tuple(dict.fromkeys(columns(shape) for job in jobs for shape in job.tables))
