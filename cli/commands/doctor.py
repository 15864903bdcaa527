"""`mq doctor`: checks the health of a cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.runner import concurrently
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import seconds
from mq.client.operations.columns import number, text

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
    number("unknown", "Checks that could not be completed"),
)


@gives(_COLUMNS, totals=_TOTALS)
@concurrently
async def doctor(
    call: Call,
    lag: Annotated[
        int, typer.Option("--lag", metavar="N", help="Lag of a group that is a warning.")
    ] = 10_000,
    disk_warning: Annotated[
        float,
        typer.Option(
            "--disk-warning",
            metavar="PERCENT",
            help="Disk usage in percent that is a warning.",
        ),
    ] = 75.0,
    disk_critical: Annotated[
        float,
        typer.Option(
            "--disk-critical",
            metavar="PERCENT",
            help="Disk usage in percent that is critical.",
        ),
    ] = 90.0,
    skew: Annotated[
        float,
        typer.Option(
            "--skew",
            metavar="SECONDS",
            parser=seconds,
            help="Clock difference that is a warning, in seconds.",
        ),
    ] = 5.0,
    problems: Annotated[bool, typer.Option("--problems", help="Show only problems.")] = False,
    nagios: Annotated[
        bool, typer.Option("--nagios", help="Print one line and exit as a Nagios plugin does.")
    ] = False,
) -> Result:
    """Check the cluster for problems.

    Name servers: do they answer and agree? Brokers: do they answer, have the right time and free
    disk space, run the same release, and have masters and slaves in sync? Topics: does each queue
    have a consumer? Groups: is the lag small, do members have the same subscriptions and unique
    client ids, are there dead letters? The exit status is 1 if there are problems; with --nagios it
    is 0 for OK, 1 for warnings, 2 for critical, 3 for unknown.

    Examples:
        mq doctor                        check the whole cluster
        mq doctor --problems --lag 1000  only problems, including any lag of 1000
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
    """Return one line: the state, the problems, and counts as performance data."""
    wrong = [f"{one.subject}: {one.detail}" for one in found if one.severity]
    text = "; ".join(wrong) if wrong else f"{totals['ok']} checks"
    counts = " ".join(f"{name}={count}" for name, count in totals.items())
    return f"MQ {bad.name} - {text.replace('|', '/')} | {counts}\n"
