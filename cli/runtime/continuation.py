"""The hint for resuming an interrupted command: a sentence and a command line.

    @goes_on(cut.export)
    async def message_export(call: Call, file: ...) -> Result:

The given function checks what the command has left, and returns the words to add to the same
command line; None if it cannot be resumed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from mq.cli.runtime.call import Call

F = TypeVar("F", bound=Callable[..., Any])


class Continuation(NamedTuple):
    """The state that an interrupted command keeps: a sentence, and the words that resume from
    it."""

    kept: str
    words: tuple[str, ...] = ()


How = Callable[[Call, dict[str, Any]], Continuation | None]


def goes_on(how: How) -> Callable[[F], F]:
    """Declare how the command resumes; `how` gets the call and the command's own options."""

    def mark(function: F) -> F:
        function.__dict__["goes_on"] = how
        return function

    return mark


def again(kept: str) -> Callable[[F], F]:
    """Declare that repeating the command does the rest; `kept` says why nothing is done twice."""
    return goes_on(lambda call, own: Continuation(kept))


def left_by(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> Continuation | None:
    """Return the continuation of an interrupted command, if any."""
    how: How | None = function.__dict__.get("goes_on")
    return None if how is None or call.dry_run else how(call, own)


def line(call: Call, left: Continuation) -> str:
    """Return the hint: the command line that continues."""
    import shlex

    words = [*call.line, *(word for word in left.words if word not in call.line)]
    return f"continue with: {shlex.join(['mq', *words])}"
