"""Request codes of handlers: the decorator of a method declares the codes that it serves.

  class LockHandlers:
      @serves(RequestCode.LOCK_BATCH_MQ)
      def lock(self, command: Command, channel: Channel) -> Command: ...

When a daemon starts, `handlers_of` collects them into its table of handlers.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode, SnodeCode

_CODES = "_serves"  # attribute of a method with its codes

Method = TypeVar("Method", bound=Callable[..., object])


def serves(*codes: RequestCode | SnodeCode) -> Callable[[Method], Method]:
    """Mark a method as the handler of these requests. It takes a command and its channel."""

    def mark(method: Method) -> Method:
        setattr(method, _CODES, codes)
        return method

    return mark


def handlers_of(*parts: object) -> dict[int, Handler]:
    """The table of all handlers of these objects. Raises ValueError like `merge`."""
    return merge(*map(_table, parts))


def _table(part: object) -> dict[int, Handler]:
    kind = type(part)
    return {
        int(code): getattr(part, name)
        for name in dir(kind)
        for code in getattr(getattr(kind, name), _CODES, ())
    }


def merge(*tables: Mapping[int, Handler]) -> dict[int, Handler]:
    """Join tables into one. Raises ValueError for a code with two handlers, which is a bug."""
    merged: dict[int, Handler] = {}
    for table in tables:
        twice = merged.keys() & table.keys()
        if twice:
            raise ValueError(f"request codes handled twice: {sorted(twice)}")
        merged.update(table)
    return merged
