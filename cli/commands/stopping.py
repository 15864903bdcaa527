"""`mq shutdown`: stops the daemons of this machine, as Java's bin/mqshutdown."""

from enum import StrEnum
from typing import Annotated

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives, writes
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.status import Status
from mq.cli.show.result import Result, Row
from mq.cli.time_expressions import seconds
from mq.client.operations.columns import flag, number, text
from mq.client.operations.errors import NotFound

COMMANDS = {"tool": ("shutdown",)}


class Daemon(StrEnum):
    """The daemons that `mq shutdown` stops."""

    BROKER = "broker"
    NAMESRV = "namesrv"


_STOPPED = (
    number("pid", "Process"),
    text("daemon", "Daemon"),
    text("arguments", "Arguments"),
    flag("ended", "Ended"),
)


@writes
@gives(_STOPPED)
def shutdown(
    call: Call,
    daemon: Annotated[
        Daemon, typer.Argument(metavar="broker|namesrv", help="Daemon to stop: broker or namesrv.")
    ],
    pid: Annotated[
        int | None, typer.Option("--pid", metavar="NUMBER", help="Only the process with this id.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            parser=seconds,
            help="Wait this long for the end; 0: do not wait.",
        ),
    ] = 0.0,
) -> Result:
    """Stop your brokers or name servers on this machine.

    They get SIGTERM, as with mqshutdown; without --pid, all of them.

    Examples:
        mq shutdown broker             stop your brokers on this machine
        mq shutdown namesrv --wait 30  and wait for the end
    """
    from mq.cli.machine import processes

    name = f"mq{daemon}"
    try:
        with processes.running(daemon, pid) as found:
            if not found.own:
                raise _none(name, pid, found.others)
            if call.dry_run:
                for process in found.own:
                    call.would("send SIGTERM to", f"{name}({process.pid})")
                return Result(_STOPPED, [])
            asked = processes.ask_to_stop(found.own)
            late = processes.not_ended(asked, wait) if wait > 0 else asked
    except OSError as error:
        raise CommandError(
            f"cannot list the processes: {error.strerror or error}",
            hint="kill -TERM the daemon, or stop it where it was started",
            status=Status.UNAVAILABLE,
        ) from None
    numbers = " ".join(str(process.pid) for process in found.own)
    plain = f"The {name}({numbers}) is running...\nSend shutdown request to {name}({numbers}) OK\n"
    rows: list[Row] = [
        (process.pid, str(daemon), " ".join(process.arguments), process not in late)
        for process in found.own
    ]
    result = Result(_STOPPED, rows, plain)
    if len(rows) > 1:
        result.notes.append(f"{len(rows)} were running, and all were stopped (--pid: one)")
    if wait > 0 and late:
        result.failures = [f"{name}({each.pid}) is still running after {wait:g} s" for each in late]
        result.status = Status.TRY_AGAIN if len(late) == len(rows) else Status.PARTLY
    return result


def _none(name: str, pid: int | None, others: int) -> NotFound:
    which = "" if pid is None else f" as process {pid}"
    hint = f"{others} of other users or in containers: run the command there" if others else ""
    return NotFound(f"No {name} running{which}.", hint=hint)
