"""How an operation reports its progress."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

# Called with the total, it returns a context manager for a function to be called with each
# increment.
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]


def unseen(total: int) -> AbstractContextManager[Callable[[int], None]]:
    """A Progress that shows nothing."""
    return nullcontext(lambda done: None)
