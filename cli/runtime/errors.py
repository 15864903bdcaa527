"""What goes wrong in a command, as the user sees it.

CommandError      one line that names the cause, a hint that names the next step, a status
└── UsageError    the command line itself is wrong

Commands raise these, or let the errors of `mq.client` and `mq.protocol` pass, among them those of
`mq.client.operations.errors`, such as NotFound: `explain` turns every other exception into a
CommandError at one place.
"""

from collections.abc import Callable

from mq.cli.runtime.status import Status


class CommandError(Exception):
    """Ends the command: `message` in one line, `hint` with the next step, `status`."""

    def __init__(self, message: str, *, hint: str = "", status: Status = Status.INTERNAL) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status


class UsageError(CommandError):
    """The command line is wrong."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, status=Status.USAGE)


def legal(check: Callable[[str], object], name: str) -> None:
    """Check the name of a topic or group. Raises UsageError that quotes it."""
    try:
        check(name)
    except ValueError as error:
        raise UsageError(f"{name!r}: {error}") from None
