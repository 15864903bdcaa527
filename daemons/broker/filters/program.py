"""Filters on the native path: the form of consumers' expressions there.

A form describes a filter to the native path (mq.daemons.broker.filters.nodes): a tuple of a word
and its operands, which are literals or further forms.

  operands     ("property", name), ("text", bytes), ("integer", int), ("long", int),
               ("double", float), ("nothing", operand)
  conditions   ("constant", True, False or None), ("and" or "or", condition, …),
               ("not", condition), ("text is true", operand), ("is null", operand),
               ("=", "<", "<=", ">" or ">=", operand, operand),
               ("in", operand, list of bytes, wanted),
               ("contains", "startswith" or "endswith", operand, bytes, wanted)

A condition is an operand, too. Python is the reference (docs/decisions/0047): it takes over when
the native path meets an unusual case, and evaluates everything once the native path has failed.
"""

from collections.abc import Iterable
from typing import Any

from mq.daemons.broker.native_failure import log_native_failure
from mq.protocol.native import failures, native


class Programs:
    """Compiles filters for the native path, and drops the path when it has failed.

    Attributes:
        select: searches for messages (`select` of the native path); None if it is not available.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self.select = None if library is None else library.select

    def compile(self, names: Iterable[str], form: tuple[Any, ...]) -> Any:
        """The compiled filter for `select`; None if Python must evaluate it."""
        if self.select is None:
            return None
        try:
            return self._library.Filter(list(names), form)
        except failures:
            self.end()
            return None

    def end(self) -> None:
        """Leave filters to Python from now on: the cause of the failure may come with each pull."""
        if self.select is not None:
            self.select = None
            log_native_failure("a filter", "filters")


programs = Programs(native)
