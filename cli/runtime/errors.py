"""The errors of a command, as the user sees them.

CommandError      a line with the cause, a hint with the next step, an exit status └── UsageError
the command line is wrong

Commands raise these, or pass on errors of `mq.client` and `mq.protocol`, among them those of
`mq.client.operations.errors`, such as NotFound: `explain` converts all other exceptions into
CommandErrors at one place.
"""

from collections.abc import Callable

from mq.cli.runtime.status import Status


class CommandError(Exception):
    """Ends the command: `message` is one line, `hint` the next step, `status` the exit status."""

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
    """Check the name of a topic or group. Raises UsageError with the name."""
    try:
        check(name)
    except ValueError as error:
        raise UsageError(f"{name!r}: {error}") from None
