"""Runs a command: once, dry, or repeatedly."""

import signal
from collections.abc import Callable
from typing import Any, TypeVar

from mq.cli.runtime.call import Call
from mq.cli.runtime.continuation import left_by, line
from mq.cli.runtime.effects import effect_of, given_by
from mq.cli.runtime.errors import CommandError
from mq.cli.runtime.interruption import STATUS, WORDS, number_of, signals
from mq.cli.runtime.invocation import Invocation, show_all
from mq.cli.runtime.status import Status
from mq.cli.show.output import Printer
from mq.cli.show.result import Result

F = TypeVar("F", bound=Callable[..., Any])


def concurrently(function: F) -> F:
    """Mark a command that needs an event loop."""
    function.__dict__["concurrent"] = True
    return function


def in_bulk(function: F) -> F:
    """Mark a command that moves much data: it uses uvloop's event loop, which is twice as fast."""
    function.__dict__["bulk"] = True
    return concurrently(function)


def run_command(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> int:
    """Call the command with its options, print its results, return its exit status.

    Raises KeyboardInterrupt if a signal ended it, unless Ctrl-C is its normal end.
    """
    given = given_by(function)
    if given is not None and given.tables:
        call.view.check(given.tables)
    call.until_stopped = call.until_stopped or effect_of(function).endless
    with signals() as ended:
        try:
            status = _run_or_report(function, call, own)
        except KeyboardInterrupt as error:
            number = number_of(error)
            if call.until_stopped and number is signal.SIGINT:
                return Status.DONE
            left = left_by(function, call, own)
            if left is None:
                raise
            raise CommandError(
                f"{WORDS[number]}: {left.kept}", hint=line(call, left), status=STATUS[number]
            ) from None
        except CommandError as error:
            if error.status is Status.INTERRUPTED and ended.number is not None:
                error.status = STATUS[ended.number]  # the command has cleaned up
            raise
        if ended.number is None or (call.until_stopped and ended.number is signal.SIGINT):
            left = left_by(function, call, own) if status == Status.PARTLY else None
            if left is not None and left.words:
                call.environment.report(f"hint: {line(call, left)}")
            return status
        return STATUS[ended.number]


def _run_or_report(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> int:
    try:
        return _run(function, call, own)
    except BaseException as error:
        for shortfall in call.shortfalls:
            call.environment.report(f"mq {call.name}: {shortfall}")
        if isinstance(error, Exception) and not isinstance(error, CommandError):
            from mq.cli.runtime.explain import note_peer

            note_peer(error, call.name_servers)
        raise


def _run(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> int:
    question = effect_of(function).destroys
    if question and not (call.yes or call.dry_run):
        from mq.cli.runtime.confirm import confirm

        confirm(call, question, own)
    call.concurrent = function.__dict__.get("concurrent", False)
    if call.concurrent and call.environment.error_terminal:
        from mq.cli.show.visible import log_visibly

        log_visibly()
    if call.dry_run:
        return _run_dry(function, call, own)
    if call.watch is not None:
        from mq.cli.runtime.watching import watch

        call.until_stopped = True
        return watch(lambda: Invocation(function, call, own), call)
    invocation = Invocation(function, call, own)
    printer = Printer(
        call.environment, call.name, call.output, view=call.view, ongoing=invocation.ongoing
    )
    return show_all(invocation, printer)


def _run_dry(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> int:
    """Run the command without making changes, and print the changes.

    The command's own results describe changes that were not made: they are shown only if there are
    no changes. Its failures, such as missing parts, would also occur without a dry run.
    """
    from mq.cli.show import changes_text

    results: list[Result] = []
    failures: list[str] = []
    failed: Exception | None = None

    def take(result: Result) -> bool:
        failures.extend(result.failures)
        if not call.changes:
            results.append(result)
            return True
        return not effect_of(function).endless  # later rounds would repeat the changes

    invocation = Invocation(function, call, own)
    ongoing = invocation.ongoing
    try:
        invocation.give(take)
    except Exception as error:
        if not call.changes:
            raise
        failed = error
    if call.changes:
        results, ongoing = [changes_text.result(call.changes, list(dict.fromkeys(failures)))], False
    printer = Printer(call.environment, call.name, call.output, view=call.view, ongoing=ongoing)
    for result in results:
        printer.show(result)
    if failed is None:
        return max((int(result.final_status) for result in results), default=0)
    from mq.cli.runtime.explain import explain

    shown = failed if isinstance(failed, CommandError) else explain(failed, call.environment)
    raise CommandError(
        f"the dry run ends here: {shown.message}",
        hint="the changes above come first; the next step may need the reply to one of them",
        status=shown.status,
    ) from failed
