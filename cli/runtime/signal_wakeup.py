"""Lets a signal wake a waiting call.

Python handles a signal between two of its own instructions. A signal that comes right before a
blocking call, or in another thread, is only noted: the call continues to wait, whatever the handler
does.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def woken() -> Iterator[int | None]:
    """Yield a descriptor that becomes readable when a signal comes in the block.

    Yields None outside the main thread, which receives no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(before)
    finally:
        os.close(reader)
        os.close(writer)


def quieten(reader: int) -> None:
    """Discard the bytes of handled signals; each signal is one byte."""
    try:
        os.read(reader, 65536)  # the capacity of a pipe
    except BlockingIOError:
        pass
