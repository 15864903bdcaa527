"""`mq spark list`, `mq spark explain` and `mq spark submit`: jobs on Spark."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError, UsageError
from mq.cli.runtime.options import widened
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.cli.spark.options import SparkOptions, checked, job_called, parameters, texts
from mq.client.operations.columns import flag, nested, text
from mq.pipeline.jobs import JOBS, load
from mq.pipeline.jobs.declaration import Job

if TYPE_CHECKING:
    from mq.cli.spark.command import SparkSetup
    from mq.pipeline.jobs.job_result import JobResult

COMMANDS = {
    "spark": (
        "spark list",
        "spark explain",
        "spark submit",
    )
}

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job (see mq spark list).")]

_JOBS = (text("job", "Job"), text("summary", "What it does"))
_OPTIONS = (
    text("option", "Option"),
    text("value", "Value"),
    flag("required", "Required"),
    text("default", "Default"),
    text("help", "Description"),
    text("example", ""),  # not shown on terminals: it would wrap the options
)
_COMMAND = (text("command", "With --print: the command"),)
_EXPLAINED = (
    text("job", "Job"),
    text("summary", "What it does"),
    text("description", "Description"),
    text("example", "Example command"),
    nested("options", "The options, each with option, value, required, default, help, example"),
    nested("tables", "The tables that it prints, each with name, title and columns"),
    text("writes", "What it writes"),
    flag("reports", "Whether it can write a --report"),
)


def _tables() -> Any:
    """Return the columns of all tables of the jobs, without duplicates."""
    jobs = [load(name) for name in JOBS]
    return tuple(dict.fromkeys(shape.columns for job in jobs for shape in job.tables))


@gives(_JOBS)
def spark_list(call: Call) -> Result:
    """List the jobs for Spark that mq includes.

    `mq spark explain JOB` shows the options and tables of each, `mq spark submit JOB` runs it.

    Examples:
        mq spark list          jobs for Spark
        mq spark list -o json  for a program
    """
    return Result(_JOBS, [(name, load(name).summary) for name in JOBS])


@gives(_OPTIONS, data=_EXPLAINED)
def spark_explain(call: Call, name: JobName) -> Result:
    """Show what a job does, its options and its tables.

    Examples:
        mq spark explain count          options and tables of a job
        mq spark explain count -o json  for a program
    """
    job = job_called(name)
    rows: list[Row] = [
        (
            f"--{option.name}",
            option.metavar,
            option.required,
            option.default_text,
            option.help,
            option.example,
        )
        for option in job.options
    ]
    names = [column.name for column in _OPTIONS]
    data = {
        "job": job.name,
        "summary": job.summary,
        "description": "\n\n".join(job.paragraphs),
        "example": job.example,
        "options": [dict(zip(names, row, strict=True)) for row in rows],
        "tables": [
            {
                "name": shape.name,
                "title": shape.title,
                "columns": [
                    {"name": column.name, "title": column.title, "kind": column.kind}
                    for column in shape.columns
                ],
            }
            for shape in job.tables
        ],
        "writes": job.writes,
        "reports": job.reports,
    }
    plain = None if call.view.chosen else "\n".join(_explained(job)) + "\n"
    return Result(_OPTIONS, rows, plain, data=[data], notes=list(_around(job)))


def _explained(job: Job) -> Iterator[str]:
    """Return the lines of a job's description."""
    yield job.summary
    for words in job.paragraphs:
        yield from ("", words)
    yield from ("", "Options:")
    for option in job.options:
        marks = " Required." if option.required else ""
        marks += f" Default: {option.default_text}." if option.default_text else ""
        yield f"  {f'--{option.name} {option.metavar}'.rstrip():<30} {option.help}{marks}"
    yield from ("", *_around(job))


def _around(job: Job) -> Iterator[str]:
    """Return the notes about a job besides its options."""
    for shape in job.tables:
        columns = ", ".join(f"{column.name} ({column.kind})" for column in shape.columns)
        yield f"Table {shape.name}, {shape.title}: {columns}"
    if job.writes:
        yield f"Writes {job.writes}"
    if job.reports:
        yield "Writes a report: --report FILE"
    yield f"Example: {job.example}"


@gives(
    *_tables(),
    _COMMAND,
    totals=(
        text("table", "Name of the table (see mq spark explain)"),
        text("report", "With --report: the file"),
    ),
)
@widened(parameters, JOBS)
@writes
async def spark_submit(
    call: Call,
    name: JobName,
    *,
    options: SparkOptions,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Write a report in HTML to this file; -: standard output.",
        ),
    ] = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the spark-submit command instead of running it.")
    ] = False,
    **given: Any,
) -> AsyncIterator[Result]:
    """Run a job on Spark, here or on a cluster.

    The job's own options follow its name: see mq spark explain. Its tables are printed one after
    the other; its log, and at a terminal its progress, go to standard error. The RocketMQ cluster
    is that of -n or of the context; the access key reaches the driver in a private file, never in
    arguments or variables.

    mq is submitted as a zip, so it need not be installed where executors run. They need pyspark,
    pyarrow, numpy and orjson, installed or in an --environment. TLS files must have the same path
    everywhere.

    With --deploy-mode cluster the driver runs in the cluster, and its log has the tables.

    Examples:
        mq spark submit count --topic Orders --print  show the spark-submit command
        mq spark submit count --topic Orders --master "local[4]"
                                                      with four threads on this machine
    """
    from mq.cli.spark import running

    job = job_called(name)
    arguments = texts(job, given, call.environment.clock())
    checked(job, arguments)
    wanted = options.wanted(progress=call.environment.error_terminal)
    wanted.check()
    _check_report(job, report, wanted)
    if print_only or call.dry_run:
        shown = _printed(call, job, wanted, options.spark_home)
        if call.dry_run:
            call.would("run", shown, f"job {job.name}")
        else:
            yield Result(_COMMAND, [(shown,)], f"{shown}\n")
        return
    try:
        outcome = _run(call, job, arguments, wanted, options.spark_home)
    except running.Interrupted as signal:
        running.deliver(signal.number)
        raise CommandError("ended by a signal", status=Status.INTERRUPTED) from None
    for result in _results(call, job, outcome, _reported(call, outcome, report)):
        yield result


def _check_report(job: Job, report: str | None, wanted: "SparkSetup") -> None:
    if report is None:
        return
    if not job.reports:
        raise UsageError(
            f"--report: job {job.name} has no report", hint="print its tables: -o markdown"
        )
    if wanted.cluster_mode:
        raise UsageError(
            "--report: with --deploy-mode cluster the report stays in the cluster",
            hint="leave out --deploy-mode cluster: the driver runs here, executors there",
        )
    if report != "-" and not Path(report).absolute().parent.is_dir():
        raise CommandError(
            f"--report: no directory {Path(report).absolute().parent}",
            status=Status.CANNOT_CREATE,
        )


def _printed(call: Call, job: Job, wanted: "SparkSetup", spark_home: str | None) -> str:
    """Return the command, with a placeholder for the file that is created when it runs."""
    from mq.cli.spark import command, installed, package

    variables = call.environment.variables
    spark = installed.find_spark(spark_home, variables)
    packed = package.package(call.environment.cache_directory)
    words = command.arguments(spark, packed, wanted, Path(command.JOB_FILE))
    return command.shown(words, command.variables_for(spark, wanted, variables, Path()))


def _run(
    call: Call, job: Job, arguments: dict[str, str], wanted: "SparkSetup", spark_home: str | None
) -> "JobResult":
    """Run the job on Spark. Raises CommandError if it fails."""
    from mq.cli.spark import command, installed, package, running
    from mq.cli.spark import job as passing

    variables = call.environment.variables
    spark = installed.find_spark(spark_home, variables)
    installed.check_java(variables)
    described = passing.description(call, job, arguments)
    packed = package.package(call.environment.cache_directory)
    packed.write()
    with passing.private_folder() as folder:
        answer = folder / "answer.json"
        described["answer"] = None if wanted.cluster_mode else str(answer)
        words = command.arguments(spark, packed, wanted, passing.write(folder, described))
        seen = command.without_secrets(variables)
        seen |= command.variables_for(spark, wanted, variables, folder)
        command.write_stand_in(folder)
        ended = running.run(words, seen, call.environment.stderr)
        return _answered(job, wanted, ended, answer)


def _answered(job: Job, wanted: "SparkSetup", ended: Any, answer: Path) -> "JobResult":
    from mq.cli.spark import job as passing
    from mq.pipeline.jobs.job_result import JobResult

    if not wanted.cluster_mode:
        return passing.outcome(answer, ended, job)
    if ended.status != 0:
        raise passing.without_answer(ended)
    return JobResult(notes=["The driver ran in the cluster; its log there has the tables."])


def _reported(call: Call, outcome: "JobResult", report: str | None) -> str | None:
    """Write the report and return its path."""
    if report is None:
        return None
    if report == "-":
        call.environment.stdout.write(outcome.page)
        return report
    from mq.client.operations import local_files

    local_files.replace(Path(report), outcome.page.encode())
    return report


def _results(call: Call, job: Job, outcome: "JobResult", report: str | None) -> Iterator[Result]:
    """Yield a result for each table that has the selected columns; the last has the failures."""
    shown = [] if report == "-" else list(outcome.tables)
    results = [
        Result(table.shape.columns, list(table.rows), totals={"table": table.shape.name})
        for table in shown
        if call.view.fits(table.shape.columns)
    ]
    if not results and (outcome.failures or outcome.notes):
        results = [Result()]
    for result in results:
        result.status = Status.PARTLY if outcome.failures else Status.DONE
    if results:
        results[-1].failures = list(outcome.failures)
        results[-1].notes = list(outcome.notes)
        if report is not None:
            results[-1].totals["report"] = report
    yield from results
