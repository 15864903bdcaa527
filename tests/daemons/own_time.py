"""How long an event loop is held up, whatever else the machine and the process are busy with."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time

__all__ = ["settled", "thread_time"]  # seconds of this thread alone


@contextmanager
def settled() -> Iterator[None]:
    """As in a daemon that has started (daemons/service.py): what lives now is not looked through.

    A process of the suite has objects of thousands of tests, and looking through them takes as long
    as what is measured here.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
