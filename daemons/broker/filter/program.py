"""Filters on the native path: what the expressions of consumers become there.

A form says to the native path what a filter is (mq.daemons.broker.filter.nodes): a tuple of a word
and what belongs to it, literals or further forms.

    operands     ("property", name), ("text", bytes), ("integer", int), ("long", int),
                 ("double", float), ("nothing", operand)
    conditions   ("constant", True, False or None), ("and" or "or", condition, …),
                 ("not", condition), ("text is true", operand), ("is null", operand),
                 ("=", "<", "<=", ">" or ">=", operand, operand),
                 ("in", operand, list of bytes, wanted),
                 ("contains", "startswith" or "endswith", operand, bytes, wanted)

A condition is an operand, too. Python stays the reference (docs/decisions/0047): it goes on where
the native path comes upon what is not usual, and does all of it once the native path has failed.
"""

from collections.abc import Iterable
from typing import Any

from mq.daemons.broker.native_failure import tell_failure
from mq.protocol.native import failures, native


class Programs:
    """What makes filters for the native path, and takes them away when it has failed.

    Attributes:
        select: looks for messages (`select` of the native path); None where it is not there.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self.select = None if library is None else library.select

    def compile(self, names: Iterable[str], form: tuple[Any, ...]) -> Any:
        """What `select` takes as a filter; None where Python has to do it."""
        if self.select is None:
            return None
        try:
            return self._library.Filter(list(names), form)
        except failures:
            self.end()
            return None

    def end(self) -> None:
        """Leave filters to Python from now on: what the path failed at may come with each pull."""
        if self.select is not None:
            self.select = None
            tell_failure("a filter", "filters")


programs = Programs(native)
