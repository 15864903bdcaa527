"""The options of a job as options of `mq spark submit`."""

import inspect
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Annotated, Any

import typer

from mq.cli import time_expressions
from mq.cli.runtime.errors import UsageError
from mq.pipeline import parsing
from mq.pipeline.jobs import JOBS, UnknownJob, load
from mq.pipeline.jobs.declaration import Job, JobError, JobOption, JobOptionError

_PREFIX = "job_option_"  # avoids clashes with parameters of the command


def job_called(name: str) -> Job:
    """Return the job. Raises UsageError with similar names."""
    try:
        return load(name)
    except UnknownJob as error:
        hint = f"did you mean {' or '.join(error.near)}?" if error.near else "see: mq spark list"
        raise UsageError(str(error), hint=hint) from None


def parameters(arguments: Sequence[str]) -> list[inspect.Parameter]:
    """Return the options of the job that the arguments name, as parameters of a command."""
    named = next((word for word in arguments if word in JOBS), None)
    if named is None:
        if arguments and not arguments[0].startswith("-"):
            job_called(arguments[0])
        return []
    return [_parameter(option) for option in load(named).options]


def texts(job: Job, given: Mapping[str, Any], now: float) -> dict[str, str]:
    """Return the given arguments of a job by name.

    A time such as `15m` is converted here to seconds since 1970: a driver starts later, perhaps
    again, and elsewhere. Raises UsageError for an invalid time.
    """
    found = {}
    for option in job.options:
        value = given.get(_PREFIX + option.field)
        if value is not None and value is not False:
            text = "true" if value is True else str(value)
            is_time = option.metavar == "TIME" and not _is_exact(text)
            found[option.name] = _exact(text, option.name, now) if is_time else text
    return found


def checked(job: Job, given: Mapping[str, str]) -> None:
    """Raise UsageError for arguments that the job rejects, before Spark is started."""
    try:
        job.read(given)
    except JobOptionError as error:
        raise UsageError(str(error), hint=error.hint) from None
    except JobError as error:
        raise UsageError(str(error), hint=f"see: mq spark explain {job.name}") from None


def _parameter(option: JobOption) -> inspect.Parameter:
    is_switch = not option.metavar
    help = option.help
    if option.metavar == "TIME":
        help = f"{help.removesuffix('.')}: {time_expressions.FORMS}."
    if option.default_text and not option.required:
        help = f"{help} Default: {option.default_text}."
    declared = typer.Option(
        f"--{option.name}",
        metavar=None if is_switch else option.metavar,
        help=f"{help} Required." if option.required else help,
    )
    return inspect.Parameter(
        _PREFIX + option.field,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=False if is_switch else None,
        annotation=Annotated[bool, declared] if is_switch else Annotated[str | None, declared],
    )


def _is_exact(text: str) -> bool:
    try:
        parsing.time(text)
    except ValueError:
        return False
    return True


def _exact(text: str, name: str, now: float) -> str:
    """Return the time of a text, in UTC."""
    return time_expressions.calendar(text, f"--{name}", now, UTC).isoformat(timespec="milliseconds")
