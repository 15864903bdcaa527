"""What a command does to a cluster: nothing, unless it says `writes` or `destroys`.

Reads can be repeated (`--watch`). Writes can be shown without being done (`--dry-run`). What
destroys data asks first, where somebody is there to answer (`--yes` answers beforehand).
"""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def writes(function: F) -> F:
    """Mark a command that changes something."""
    function.__dict__["writes"] = True
    return function


def destroys(what: str) -> Callable[[F], F]:
    """Mark a command that changes something for good, such as `delete topic {topic}`.

    The braces name parameters of the command; the text is what the user is asked about.
    """

    def mark(function: F) -> F:
        function.__dict__["destroys"] = what
        return writes(function)

    return mark
