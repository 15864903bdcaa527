"""Whether a cluster is well."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row, number, text
from mq.cli.time_expressions import seconds

if TYPE_CHECKING:
    from mq.client.operations.doctor.finding import Finding, Severity

COMMANDS = {"cluster": ("doctor",)}

_COLUMNS = (
    text("severity", "Severity"),
    text("check", "Check"),
    text("subject", "Subject"),
    text("detail", "Finding"),
    text("hint", "Fix"),
)
_TOTALS = (
    number("ok", "Findings without a problem"),
    number("warning", "Warnings"),
    number("critical", "Critical findings"),
    number("unknown", "Checks that could not be made"),
)


@gives(_COLUMNS, totals=_TOTALS)
@concurrently
async def doctor(
    call: Call,
    lag: Annotated[
        int, typer.Option("--lag", metavar="N", help="Lag of a group from which it is a warning.")
    ] = 10_000,
    disk_warning: Annotated[
        float,
        typer.Option(
            "--disk-warning",
            metavar="PERCENT",
            help="Disk usage in percent from which it is a warning.",
        ),
    ] = 75.0,
    disk_critical: Annotated[
        float,
        typer.Option(
            "--disk-critical",
            metavar="PERCENT",
            help="Disk usage in percent from which it is critical.",
        ),
    ] = 90.0,
    skew: Annotated[
        float,
        typer.Option(
            "--skew",
            metavar="SECONDS",
            parser=seconds,
            help="Clock difference from which it is a warning, in seconds.",
        ),
    ] = 5.0,
    problems: Annotated[bool, typer.Option("--problems", help="Show only problems.")] = False,
    nagios: Annotated[
        bool, typer.Option("--nagios", help="Print one line and exit as a Nagios plugin does.")
    ] = False,
) -> Result:
    """Check a cluster and report what is wrong with it.

    Name servers answer and agree; brokers answer, keep the time, have room on their disks, run the
    same release, have masters, and slaves that follow; topics have queues that are all read;
    groups keep up, their members subscribe alike and have client ids of their own, and there are
    no dead letters. Ends with 1 if anything is wrong; with --nagios with 0, 1 for warnings, 2 for
    critical, 3 for unknown.

    Examples:
        mq doctor                        check all of the cluster
        mq doctor --problems --lag 1000  only problems, a lag of 1000 is one
        mq doctor --nagios               one line, for a monitoring system
    """
    from mq.client.operations.doctor.checkup import examine
    from mq.client.operations.doctor.examination import Limits

    if disk_critical < disk_warning:
        raise UsageError(
            f"--disk-critical {disk_critical:g} is below --disk-warning {disk_warning:g}"
        )
    async with call.session() as session:
        limits = Limits(lag, (disk_warning, disk_critical), skew)
        found = await examine(session, limits, call.environment.clock())
    return _result(found, problems=problems, nagios=nagios)


def _result(found: list["Finding"], *, problems: bool, nagios: bool) -> Result:
    from mq.client.operations.doctor.finding import Severity, worst

    bad = worst(found)
    counts = {level: sum(one.severity is level for one in found) for level in Severity}
    totals = {level.name.lower(): counts[level] for level in Severity}
    shown = [one for one in found if not problems or one.severity is not Severity.OK]
    shown.sort(key=lambda one: -one.severity)
    result = Result(_COLUMNS, [_row(one) for one in shown], totals=totals)
    if bad is not Severity.OK:
        result.status = Status.PARTLY
    if nagios:
        result.plain = _nagios(found, bad, totals)
        result.status = Status(bad)
    return result


def _row(finding: "Finding") -> Row:
    hint = finding.hint or None
    return (finding.severity.name.lower(), finding.check, finding.subject, finding.detail, hint)


def _nagios(found: list["Finding"], bad: "Severity", totals: dict[str, int]) -> str:
    """One line: the state, what is wrong, and counts as performance data."""
    wrong = [f"{one.subject}: {one.detail}" for one in found if one.severity]
    text = "; ".join(wrong) if wrong else f"{totals['ok']} checks"
    counts = " ".join(f"{name}={count}" for name, count in totals.items())
    return f"MQ {bad.name} - {text.replace('|', '/')} | {counts}\n"
