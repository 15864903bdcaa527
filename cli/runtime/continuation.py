"""How to go on with what was cut: the sentence and the command line that end a cut command.

    @goes_on(cut.export)
    async def message_export(call: Call, file: ...) -> Result:

The function that is given looks at what the command has left, and says what to add to the same
command line; None where there is nothing to go on from.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from mq.cli.runtime.call import Call

F = TypeVar("F", bound=Callable[..., Any])


class Continuation(NamedTuple):
    """What a cut command has left: a sentence about it, and the words that go on from it."""

    kept: str
    words: tuple[str, ...] = ()


How = Callable[[Call, dict[str, Any]], Continuation | None]


def goes_on(how: How) -> Callable[[F], F]:
    """Declare how the command goes on; `how` is given the call and the command's own options."""

    def mark(function: F) -> F:
        function.__dict__["goes_on"] = how
        return function

    return mark


def again(kept: str) -> Callable[[F], F]:
    """Declare that the same command does what is left; `kept` says why nothing is done twice."""
    return goes_on(lambda call, own: Continuation(kept))


def left_by(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> Continuation | None:
    """What a cut command has left, if that can be said."""
    how: How | None = function.__dict__.get("goes_on")
    return None if how is None or call.dry_run else how(call, own)


def line(call: Call, left: Continuation) -> str:
    """The hint: the command line that goes on."""
    import shlex

    words = [*call.line, *(word for word in left.words if word not in call.line)]
    return f"go on: {shlex.join(['mq', *words])}"
